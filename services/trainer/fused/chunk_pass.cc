#include "services/trainer/fused/chunk_pass.h"

#include <algorithm>
#include <utility>

#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

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
  context->scoring.AllocateTile(d->candidates.rows.rows, m, context->arena, &d->tile);
}

void ChunkPass::Forward(StepContext* context, Direction* d) {
  const Scoring& scoring = context->scoring;
  if (d->candidates.rows.rows > 0) scoring.ScoreRows(d->candidates, d->queries, 0, &d->tile);
  if (d->batch) {
    for (int64_t i = 0; i < d->queries.size(); ++i) d->pos[i] = d->tile.scores.at(i, i);
  } else {
    scoring.ScorePairs(d->queries.prepared, d->candidates_side->positives(), d->pos);
  }
}

void ChunkPass::ForwardTransposed(StepContext* context, Direction* lhs, Direction* rhs) {
  Forward(context, rhs);
  const int64_t m = rhs->queries.size();
  if (lhs->candidates.rows.rows > m) {
    context->scoring.ScoreRows(lhs->candidates_side->negatives(), lhs->queries, m, &lhs->tile);
  }
  TransposeTile(BatchPart(rhs->tile.scores), BatchPart(lhs->tile.scores));
  if (rhs->tile.distances.data != nullptr) {
    TransposeTile(BatchPart(rhs->tile.distances), BatchPart(lhs->tile.distances));
  }
  std::copy_n(rhs->pos, m, lhs->pos);
}

void ChunkPass::Lose(StepContext* context, Direction* d) {
  StepSide& side = *d->candidates_side->side;
  const int64_t first = d->candidates_side->first_edge;
  const int64_t m = d->queries.size();
  const float* weights = context->weights + first;
  context->loss.Positives(m, d->pos, weights, d->pos_grad, side.loss + first);
  if (d->num_negatives == 0) {
    // Nothing else looks at these scores: NaN unless they are finite.
    for (int64_t i = 0; i < m; ++i) side.loss[first + i] += d->pos[i] - d->pos[i];
    return;
  }
  if (d->batch) SetDiagonal(BatchPart(d->tile.scores), kMaskedScore);
  if (context->scores != nullptr) CopyScores(context, *d);
  side.violators += context->loss.Negatives({.scores = d->tile.scores,
                                             .grads = d->tile.grads,
                                             .pos = d->pos,
                                             .weight = weights,
                                             .pos_grad = d->pos_grad,
                                             .loss = side.loss + first},
                                            d->num_negatives);
}

void ChunkPass::CopyScores(StepContext* context, const Direction& d) {
  const Side side = d.candidates_side->side->side;
  std::vector<float>& out =
      side == Side::kLhs ? context->scores->lhs_neg : context->scores->rhs_neg;
  const int64_t m = d.queries.size();
  const int64_t from_batch = d.batch ? m : 0;
  const int64_t uniform = d.tile.scores.rows - from_batch;
  float* to = out.data() + d.candidates_side->first_edge * d.num_negatives;
  TransposeTile(d.tile.scores.Rows(0, from_batch), {to, m, from_batch, d.num_negatives});
  TransposeTile(d.tile.scores.Rows(from_batch, uniform),
                {to + d.num_negatives - uniform, m, uniform, d.num_negatives});
  for (int64_t i = 0; d.batch && i < m; ++i) {
    std::fill_n(to + i * d.num_negatives + m, context->chunk_size - m, kMaskedScore);
  }
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
    scoring.QueryGradients(d->tile, d->candidates, d->queries, queries->queries_written(),
                           query_grads);
    queries->queries_written() = true;
    RowBlock candidate_grads = candidates->negative_grads();
    if (d->batch && !candidates->written) {
      candidate_grads = candidates->grads;
      candidates->written = true;
      scoring.CandidateGradients(d->tile, candidates->plain, d->queries, 0, false, candidate_grads);
    } else if (d->batch) {
      candidate_grads = candidates->grads;
      const int64_t m = candidates->num_positives;
      scoring.CandidateGradients(d->tile, candidates->positives(), d->queries, 0, true,
                                 candidates->positive_grads());
      scoring.CandidateGradients(d->tile, candidates->negatives(), d->queries, m, false,
                                 candidates->negative_grads());
    } else {
      scoring.CandidateGradients(d->tile, candidates->negatives(), d->queries, 0, false,
                                 candidate_grads);
    }
    scoring.AddClosePairs(d->tile, d->candidates, d->queries, candidate_grads, query_grads);
  }
  if (d->batch) return;
  EnsureWritten(candidates);
  EnsureWritten(queries);
  scoring.ScorePairsBackward(d->queries.prepared, candidates->positives(), d->pos_grad, query_grads,
                             candidates->positive_grads());
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

  SideRows* lhs_rows = lhs->candidates_side;
  SideRows* rhs_rows = rhs->candidates_side;
  scoring.QueryGradients(right, rhs->candidates, rhs->queries, false, lhs_rows->positive_grads());
  scoring.QueryGradients(left, lhs->candidates, lhs->queries, false, rhs_rows->positive_grads());
  scoring.CandidateGradients(right, rhs_rows->negatives(), rhs->queries, m, false,
                             rhs_rows->negative_grads());
  scoring.CandidateGradients(left, lhs_rows->negatives(), lhs->queries, m, false,
                             lhs_rows->negative_grads());
  scoring.AddClosePairs(right, rhs->candidates, rhs->queries, rhs_rows->grads,
                        lhs_rows->positive_grads());
  scoring.AddClosePairs(left, lhs->candidates, lhs->queries, lhs_rows->grads,
                        rhs_rows->positive_grads());
  lhs_rows->written = rhs_rows->written = true;
}

void ChunkPass::Run(StepContext* context, int64_t chunk, const BatchQueries* const batch[2]) {
  Arena* arena = context->arena;
  const Arena::Mark mark = arena->mark();
  const int64_t first = chunk * context->chunk_size;
  const int64_t m = std::min(context->chunk_size, context->n - first);
  int64_t slot = context->FirstSlot(chunk);
  SideRows sides[2];
  for (int s = 0; s < 2; ++s) {
    StepSide& side = context->sides[s];
    sides[s] =
        LoadSide(context, &side, first, m,
                 side.uniform.subspan(chunk * side.num_uniform, side.num_uniform), slot, batch[s]);
    slot += m + side.num_uniform;
  }

  Direction& lhs = directions_[0];
  Direction& rhs = directions_[1];
  Begin(context, &sides[0], &sides[1], &lhs);
  Begin(context, &sides[1], &sides[0], &rhs);
  const bool transposed = lhs.batch && rhs.batch && !context->dynamic_operator;
  if (transposed) {
    ForwardTransposed(context, &lhs, &rhs);
  } else {
    Forward(context, &lhs);
    Forward(context, &rhs);
  }
  if (context->scores != nullptr) {
    std::copy_n(lhs.pos, m, context->scores->lhs_pos.begin() + first);
    std::copy_n(rhs.pos, m, context->scores->rhs_pos.begin() + first);
  }
  Lose(context, &lhs);
  Lose(context, &rhs);

  if (context->backward) {
    if (transposed) {
      BackwardTransposed(context, &lhs, &rhs);
    } else {
      Backward(context, &lhs);
      Backward(context, &rhs);
    }
    for (SideRows& side : sides) EnsureWritten(&side);
  }
  for (SideRows& side : sides) AddRegularization(context, &side);
  if (context->backward) {
    for (SideRows& side : sides) BackwardCandidates(context, &side);
    if (batch[0] == nullptr) {
      for (SideRows& side : sides) BackwardQueries(context, &side);
      for (SideRows& side : sides) FinishSlots(context, side);
    }
  }
  arena->Release(mark);
}

}  // namespace weft
