#include "services/trainer/fused/chunk_pass.h"

#include <algorithm>
#include <utility>

#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

// Negatives that are gathered and scored together: about what the second-level cache holds with all
// that goes with them.
constexpr int64_t kRowsAtOnce = 64;

// The square part of a tile that scores a chunk's positives against each other.
Tile BatchPart(const Tile& tile) { return tile.Rows(0, tile.cols); }

void SetDiagonal(const Tile& tile, float value) {
  for (int64_t i = 0; i < tile.cols; ++i) tile.at(i, i) = value;
}

}  // namespace

void ChunkPass::Begin(StepContext* context, SideRows* candidates, SideRows* queries, Direction* d) {
  const StepSide& side = *candidates->side;
  const int64_t m = candidates->num_positives;
  d->candidates_side = candidates;
  d->queries_side = queries;
  d->queries = context->scoring.MakeQueries(queries->queries(), context->arena);
  d->batch = side.batch_negatives();
  d->candidates = d->batch ? candidates->plain : candidates->negatives();
  d->num_negatives = (d->batch ? context->chunk_size : 0) + side.num_uniform;
  d->pos = context->arena->Floats(m);
  d->pos_grad = context->arena->Floats(m);
  std::fill_n(d->pos_grad, m, 0.0f);
  context->scoring.AllocateTile(context->arena->Scores(d->candidates.rows.rows, m), context->arena,
                                &d->tile);
}

void ChunkPass::Score(StepContext* context, bool whole, Direction* d) {
  const Scoring& scoring = context->scoring;
  SideRows* rows = d->candidates_side;
  const int64_t uniform = rows->side->num_uniform;
  const int64_t from_batch = d->batch ? rows->num_positives : 0;
  if (uniform <= kRowsAtOnce) {
    LoadNegatives(context, rows, 0, uniform);
    const int64_t first = whole ? 0 : from_batch;
    const int64_t count = d->candidates.rows.rows - first;
    if (count > 0) {
      scoring.ScoreRows(d->candidates.Slice(first, count), d->queries, first, &d->tile);
    }
    return;
  }
  // Many: each block is scored while it is in the caches, and the next one asked for.
  if (whole && d->batch) {
    context->StopPrefetch();
    scoring.ScoreRows(rows->positives(), d->queries, 0, &d->tile);
  }
  for (int64_t first = 0; first < uniform; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, uniform - first);
    LoadNegatives(context, rows, first, count);
    const int64_t next = rows->negative_slots.first + first + count;
    const int64_t num_next = std::min(kRowsAtOnce, uniform - first - count);
    context->Prefetch(next, next + num_next,
                      2.0 * static_cast<double>(count * rows->num_positives * context->dim));
    scoring.ScoreRows(rows->negatives().Slice(first, count), d->queries, from_batch + first,
                      &d->tile);
  }
}

void ChunkPass::ScorePositives(StepContext* context, Direction* d) {
  if (d->batch) {
    for (int64_t i = 0; i < d->queries.size(); ++i) d->pos[i] = d->tile.scores.at(i, i);
  } else {
    context->scoring.ScorePairs(d->queries.prepared, d->candidates_side->positives(), d->pos);
  }
}

void ChunkPass::Lose(StepContext* context, Direction* d) {
  StepSide& side = *d->candidates_side->side;
  const int64_t first = d->candidates_side->first_edge;
  const int64_t m = d->queries.size();
  const float* weights = context->weights + first;
  if (context->scores != nullptr) CopyScores(context, *d);
  context->loss.Positives(m, d->pos, weights, d->pos_grad, side.loss + first);
  if (d->num_negatives == 0) {
    // Nothing else looks at these scores: NaN unless they are finite.
    for (int64_t i = 0; i < m; ++i) side.loss[first + i] += d->pos[i] - d->pos[i];
    return;
  }
  if (d->batch) SetDiagonal(BatchPart(d->tile.scores), kMaskedScore);
  side.violators += context->loss.Negatives({.scores = d->tile.scores,
                                             .grads = d->tile.grads,
                                             .pos = d->pos,
                                             .weight = weights,
                                             .pos_grad = d->pos_grad,
                                             .loss = side.loss + first},
                                            d->num_negatives);
}

void ChunkPass::CopyScores(StepContext* context, const Direction& d) {
  const bool lhs = d.candidates_side->side->side == Side::kLhs;
  const int64_t first = d.candidates_side->first_edge;
  const int64_t m = d.queries.size();
  std::copy_n(d.pos, m, (lhs ? context->scores->lhs_pos : context->scores->rhs_pos).data() + first);
  if (d.num_negatives == 0) return;
  const int64_t from_batch = d.batch ? m : 0;
  const int64_t uniform = d.tile.scores.rows - from_batch;
  const Tile out{
      (lhs ? context->scores->lhs_neg : context->scores->rhs_neg).data() + first * d.num_negatives,
      m, d.num_negatives, d.num_negatives};
  if (d.batch) {
    TransposeTile(BatchPart(d.tile.scores), {out.data, m, m, out.stride});
    for (int64_t i = 0; i < m; ++i) {
      out.at(i, i) = kMaskedScore;
      std::fill_n(&out.at(i, m), context->chunk_size - m, kMaskedScore);
    }
  }
  TransposeTile(d.tile.scores.Rows(from_batch, uniform),
                {out.data + d.num_negatives - uniform, m, uniform, out.stride});
}

void ChunkPass::BackwardCandidates(StepContext* context, Direction* d) {
  const Scoring& scoring = context->scoring;
  SideRows* rows = d->candidates_side;
  const int64_t m = rows->num_positives;
  if (!d->batch) {
    scoring.CandidateGradients(d->tile, rows->negatives(), d->queries, 0,
                               {.block = rows->negative_grads(), .scattered = {}});
  } else if (rows->direct) {
    const ScatteredRows scattered =
        context->rows->BeginProduct(rows->positive_slots, rows->negative_slots);
    scoring.CandidateGradients(d->tile, rows->plain, d->queries, 0,
                               {.block = {}, .scattered = scattered});
    context->rows->EndProduct();
  } else if (!rows->written) {
    scoring.CandidateGradients(d->tile, rows->plain, d->queries, 0,
                               {.block = rows->grads, .scattered = {}});
  } else {
    scoring.CandidateGradients(
        d->tile, rows->positives(), d->queries, 0,
        {.block = rows->positive_grads(), .accumulate = true, .scattered = {}});
    scoring.CandidateGradients(d->tile, rows->negatives(), d->queries, m,
                               {.block = rows->negative_grads(), .scattered = {}});
  }
  if (d->batch) rows->written = true;
}

void ChunkPass::Backward(StepContext* context, Direction* d) {
  const Scoring& scoring = context->scoring;
  SideRows* candidates = d->candidates_side;
  SideRows* queries = d->queries_side;
  const RowBlock query_grads = queries->gradients_of_queries();
  if (d->num_negatives > 0) {
    if (d->batch) {
      for (int64_t i = 0; i < d->queries.size(); ++i) d->tile.grads.at(i, i) = d->pos_grad[i];
    }
    scoring.BeginBackward(&d->tile);
    scoring.QueryGradients(
        d->tile, d->candidates, d->queries,
        {.block = query_grads, .accumulate = queries->queries_written(), .scattered = {}});
    queries->queries_written() = true;
    BackwardCandidates(context, d);
    scoring.AddClosePairs(d->tile, d->candidates, d->queries,
                          d->batch ? candidates->grads : candidates->negative_grads(), query_grads);
  }
  if (d->batch) return;
  EnsureWritten(candidates);
  EnsureWritten(queries);
  scoring.ScorePairsBackward(d->queries.prepared, candidates->positives(), d->pos_grad, query_grads,
                             candidates->positive_grads());
}

void ChunkPass::RunOneByOne(StepContext* context, int64_t chunk, SideRows sides[2]) {
  Arena* arena = context->arena;
  for (int s = 0; s < 2; ++s) {
    const Arena::Mark mark = arena->mark();
    Direction& direction = directions_[s];
    Begin(context, &sides[s], &sides[1 - s], &direction);
    Score(context, true, &direction);
    ScorePositives(context, &direction);
    Lose(context, &direction);
    // What comes next: the right-hand side's negatives, or the next chunk up to the left-hand
    // side's.
    const SlotRange negatives = context->NegativeSlots(Side::kRhs, chunk);
    int64_t next = negatives.first;
    int64_t end = next + std::min(kRowsAtOnce, negatives.count);
    if (s == 1) {
      next = end = context->FirstSlot(chunk + 1);
      if (chunk + 1 < context->num_chunks()) {
        const SlotRange following = context->NegativeSlots(Side::kLhs, chunk + 1);
        end = following.first + std::min(kRowsAtOnce, following.count);
      }
    }
    context->Prefetch(next, end,
                      4.0 * static_cast<double>(direction.candidates.rows.rows *
                                                sides[s].num_positives * context->dim));
    if (context->backward) Backward(context, &direction);
    arena->Release(mark);
  }
}

void ChunkPass::RunTransposed(StepContext* context, int64_t chunk, SideRows sides[2]) {
  Direction& lhs = directions_[0];
  Direction& rhs = directions_[1];
  Begin(context, &sides[0], &sides[1], &lhs);
  Begin(context, &sides[1], &sides[0], &rhs);
  const int64_t m = rhs.queries.size();
  const auto prefetch_next_chunk = [&](double flops) {
    const bool last = chunk + 1 == context->num_chunks();
    context->Prefetch(context->FirstSlot(chunk + 1), context->FirstSlot(chunk + (last ? 1 : 2)),
                      flops);
  };
  const double flops = 2.0 * static_cast<double>(m * context->dim) *
                       static_cast<double>(sides[0].plain.rows.rows + sides[1].plain.rows.rows);
  const bool small =
      std::max(sides[0].side->num_uniform, sides[1].side->num_uniform) <= kRowsAtOnce;
  if (small) prefetch_next_chunk(2.5 * flops);

  Score(context, false, &lhs);
  Score(context, true, &rhs);
  ScorePositives(context, &rhs);
  TransposeTile(BatchPart(rhs.tile.scores), BatchPart(lhs.tile.scores));
  if (rhs.tile.distances.data != nullptr) {
    TransposeTile(BatchPart(rhs.tile.distances), BatchPart(lhs.tile.distances));
  }
  std::copy_n(rhs.pos, m, lhs.pos);
  Lose(context, &lhs);
  Lose(context, &rhs);
  if (!small) prefetch_next_chunk(1.5 * flops);
  if (context->backward) BackwardTransposed(context, &lhs, &rhs);
}

void ChunkPass::BackwardTransposed(StepContext* context, Direction* lhs, Direction* rhs) {
  const Scoring& scoring = context->scoring;
  const int64_t m = rhs->queries.size();
  ScoredTile& left = lhs->tile;
  ScoredTile& right = rhs->tile;
  for (int64_t i = 0; i < m; ++i) {
    left.grads.at(i, i) = 0;
    right.grads.at(i, i) = lhs->pos_grad[i] + rhs->pos_grad[i];
  }
  AddTransposed(BatchPart(right.grads), BatchPart(left.grads));
  for (const TilePair& pair : right.close) {
    if (pair.row >= m) continue;
    left.close.push_back({pair.col, pair.row});
    ++left.num_mirrored;
  }
  scoring.BeginBackward(&right);
  scoring.BeginBackward(&left);

  // A side's positives are the other side's queries.
  for (Direction* d : {rhs, lhs}) {
    SideRows* positives = d->queries_side;
    SideRows* negatives = d->candidates_side;
    RowGradients* rows = context->rows;
    GradientTarget target;
    if (positives->direct) {
      target.scattered = rows->BeginProduct(positives->positive_slots);
    } else {
      target.block = positives->positive_grads();
    }
    scoring.QueryGradients(d->tile, d->candidates, d->queries, target);
    if (positives->direct) rows->EndProduct();
    positives->written = true;

    target = {};
    if (negatives->direct) {
      target.scattered = rows->BeginProduct(negatives->negative_slots);
    } else {
      target.block = negatives->negative_grads();
    }
    scoring.CandidateGradients(d->tile, negatives->negatives(), d->queries, m, target);
    if (negatives->direct) rows->EndProduct();
  }
  scoring.AddClosePairs(right, rhs->candidates, rhs->queries, rhs->candidates_side->grads,
                        lhs->candidates_side->positive_grads());
  scoring.AddClosePairs(left, lhs->candidates, lhs->queries, lhs->candidates_side->grads,
                        rhs->candidates_side->positive_grads());
}

void ChunkPass::Run(StepContext* context, int64_t chunk, const BatchQueries* const batch[2]) {
  Arena* arena = context->arena;
  const Arena::Mark mark = arena->mark();
  const int64_t first = chunk * context->chunk_size;
  SideRows sides[2];
  for (int s = 0; s < 2; ++s) {
    sides[s] = LoadPositives(context, &context->sides[s], first, context->PositivesOfChunk(chunk),
                             batch[s]);
    // Few are copied in no time, and are aligned then.
    if (context->sides[s].num_uniform > kRowsAtOnce) {
      KeepInPlace(context, &sides[s], &places_[s]);
    }
  }
  if (context->transposed()) {
    RunTransposed(context, chunk, sides);
  } else {
    RunOneByOne(context, chunk, sides);
  }
  for (int s = 0; s < 2; ++s) FinishSide(context, &sides[s], batch[s]);
  arena->Release(mark);
  if (!context->steps) return;
  for (const SideRows& rows : sides) {
    context->rows->StepDone(rows.side->side, rows.positive_slots, rows.negative_slots, context->lr,
                            rows.side->global_grads);
  }
}

}  // namespace weft
