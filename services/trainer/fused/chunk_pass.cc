#include "services/trainer/fused/chunk_pass.h"

#include <algorithm>
#include <utility>

#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

// The square part of a tile that scores a chunk's positives against each other.
Tile BatchPart(const Tile& tile) { return {tile.data, tile.rows, tile.rows, tile.stride}; }

void SetDiagonal(const Tile& tile, float value) {
  for (int64_t i = 0; i < tile.rows; ++i) tile.at(i, i) = value;
}

}  // namespace

void ChunkPass::Begin(StepContext* context, SideRows* candidates, SideRows* queries, Direction* d) {
  const StepSide& side = *candidates->side;
  const int64_t m = candidates->num_positives;
  d->candidates_side = candidates;
  d->queries_side = queries;
  d->queries = queries->queries();
  d->batch = side.batch_negatives();
  d->candidates = d->batch ? candidates->plain : candidates->negatives();
  d->num_negatives = (d->batch ? context->chunk_size : 0) + side.num_uniform;
  d->pos = context->arena->Floats(m);
  d->pos_grad = context->arena->Floats(m);
  std::fill_n(d->pos_grad, m, 0.0f);
  context->scoring.AllocateTile(m, d->candidates.rows.rows, context->arena, &d->tile);
}

void ChunkPass::Forward(StepContext* context, Direction* d) {
  const Scoring& scoring = context->scoring;
  if (d->candidates.rows.rows > 0) scoring.ScoreColumns(d->queries, d->candidates, 0, &d->tile);
  if (d->batch) {
    for (int64_t i = 0; i < d->queries.rows.rows; ++i) d->pos[i] = d->tile.scores.at(i, i);
  } else {
    scoring.ScorePairs(d->queries, d->candidates_side->positives(), d->pos);
  }
}

void ChunkPass::ForwardTransposed(StepContext* context, Direction* lhs, Direction* rhs) {
  Forward(context, rhs);
  const int64_t m = rhs->queries.rows.rows;
  if (lhs->candidates.rows.rows > m) {
    context->scoring.ScoreColumns(lhs->queries, lhs->candidates_side->negatives(), m, &lhs->tile);
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
  const int64_t m = d->queries.rows.rows;
  const float* weights = context->weights + first;
  context->loss.Positives(m, d->pos, weights, d->pos_grad, side.loss + first);
  if (d->num_negatives == 0) {
    // Nothing else looks at these scores: NaN unless they are finite.
    for (int64_t i = 0; i < m; ++i) side.loss[first + i] += d->pos[i] - d->pos[i];
    return;
  }
  if (d->batch) SetDiagonal(BatchPart(d->tile.scores), kMaskedScore);
  PadTile(d->tile.scores, kPadScore);
  if (context->scores != nullptr) CopyScores(context, *d);
  const LossTile tile{.scores = d->tile.scores,
                      .grads = d->tile.grads,
                      .pos = d->pos,
                      .weight = weights,
                      .pos_grad = d->pos_grad,
                      .row_loss = side.loss + first,
                      .scratch = context->arena->Floats(3 * PaddedDim(m))};
  side.violators += context->loss.Negatives(tile, d->num_negatives);
}

void ChunkPass::CopyScores(StepContext* context, const Direction& d) {
  const Side side = d.candidates_side->side->side;
  std::vector<float>& out =
      side == Side::kLhs ? context->scores->lhs_neg : context->scores->rhs_neg;
  const int64_t m = d.queries.rows.rows;
  const int64_t from_batch = d.batch ? m : 0;
  for (int64_t i = 0; i < m; ++i) {
    float* to = out.data() + (d.candidates_side->first_edge + i) * d.num_negatives;
    const float* from = d.tile.scores.row(i);
    to = std::copy_n(from, from_batch, to);
    if (d.batch) to = std::fill_n(to, context->chunk_size - m, kMaskedScore);
    std::copy_n(from + from_batch, d.candidates.rows.rows - from_batch, to);
  }
}

void ChunkPass::Backward(StepContext* context, Direction* d) {
  const Scoring& scoring = context->scoring;
  SideRows* candidates = d->candidates_side;
  SideRows* queries = d->queries_side;
  const RowBlock query_grads = queries->gradients_of_queries();
  if (d->num_negatives > 0) {
    if (d->batch) {
      for (int64_t i = 0; i < d->queries.rows.rows; ++i) d->tile.grads.at(i, i) = d->pos_grad[i];
    }
    scoring.BeginBackward(&d->tile);
    scoring.QueryGradients(d->tile, d->queries, d->candidates, queries->queries_written(),
                           query_grads);
    queries->queries_written() = true;
    const int64_t m = d->batch ? candidates->num_positives : 0;
    if (d->batch) {
      scoring.CandidateGradients(d->tile, d->queries, candidates->positives(), 0,
                                 candidates->written, candidates->positive_grads());
      candidates->written = true;
    }
    scoring.CandidateGradients(d->tile, d->queries, candidates->negatives(), m, false,
                               candidates->negative_grads());
    scoring.AddClosePairs(d->tile, d->queries, d->candidates, query_grads,
                          d->batch ? candidates->grads : candidates->negative_grads());
  }
  if (d->batch) return;
  EnsureWritten(candidates);
  EnsureWritten(queries);
  scoring.ScorePairsBackward(d->queries, candidates->positives(), d->pos_grad, query_grads,
                             candidates->positive_grads());
}

void ChunkPass::BackwardTransposed(StepContext* context, Direction* lhs, Direction* rhs) {
  const Scoring& scoring = context->scoring;
  const int64_t m = rhs->queries.rows.rows;
  ScoredTile& left = lhs->tile;
  ScoredTile& right = rhs->tile;
  for (int64_t i = 0; i < m; ++i) {
    left.grads.at(i, i) = 0;
    right.grads.at(i, i) = lhs->pos_grad[i] + rhs->pos_grad[i];
  }
  AddTransposed(BatchPart(right.grads), BatchPart(left.grads));
  for (const TilePair& pair : right.close) {
    if (pair.j >= m) continue;
    left.close.push_back({pair.j, pair.i});
    ++left.num_mirrored;
  }
  scoring.BeginBackward(&right);
  scoring.BeginBackward(&left);

  SideRows* lhs_rows = lhs->candidates_side;
  SideRows* rhs_rows = rhs->candidates_side;
  scoring.QueryGradients(right, rhs->queries, rhs->candidates, false, lhs_rows->positive_grads());
  scoring.QueryGradients(left, lhs->queries, lhs->candidates, false, rhs_rows->positive_grads());
  scoring.CandidateGradients(right, rhs->queries, rhs_rows->negatives(), m, false,
                             rhs_rows->negative_grads());
  scoring.CandidateGradients(left, lhs->queries, lhs_rows->negatives(), m, false,
                             lhs_rows->negative_grads());
  scoring.AddClosePairs(right, rhs->queries, rhs->candidates, lhs_rows->positive_grads(),
                        rhs_rows->grads);
  scoring.AddClosePairs(left, lhs->queries, lhs->candidates, rhs_rows->positive_grads(),
                        lhs_rows->grads);
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
