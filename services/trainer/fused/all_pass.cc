#include "services/trainer/fused/all_pass.h"

#include <algorithm>
#include <cfloat>

#include "services/trainer/kernels/loss_ops.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {

AllPass::Candidates AllPass::LoadTile(StepContext* context, const StepSide& side, int64_t first) {
  Arena* arena = context->arena;
  const int64_t count = std::min(kTileCandidates, side.table.count - first);
  Candidates candidates;
  candidates.first = first;
  candidates.input = arena->Rows(count, context->dim);
  GatherRange(side.table, first, side.global, candidates.input);
  RowBlock plain = candidates.input;
  if (side.op != nullptr && !context->dynamic_operator) {
    plain = arena->Rows(count, context->dim);
    context->operators->Forward(*side.op, nullptr, candidates.input, plain);
  }
  candidates.plain = context->scoring.Allocate(plain, arena);
  context->scoring.Prepare(candidates.plain);
  return candidates;
}

void AllPass::ScoreTile(StepContext* context, const StepSide& side, const Queries& queries,
                        const Candidates& candidates) {
  const int64_t count = candidates.plain.rows.rows;
  context->scoring.AllocateTile(count, queries.size(), context->arena, &tile_);
  context->scoring.ScoreRows(candidates.plain, queries, 0, &tile_);
  for (int64_t i = 0; i < queries.size(); ++i) {
    const int64_t own = side.positives[i] - candidates.first;
    if (own >= 0 && own < count) tile_.scores.at(own, i) = kMaskedScore;
  }
}

void AllPass::CopyScores(StepContext* context, const StepSide& side, int64_t first) {
  std::vector<float>& out =
      side.side == Side::kLhs ? context->scores->lhs_neg : context->scores->rhs_neg;
  TransposeTile(tile_.scores,
                {out.data() + first, tile_.scores.cols, tile_.scores.rows, side.table.count});
}

void AllPass::BackwardTile(StepContext* context, StepSide* side, const Queries& queries,
                           const Candidates& candidates, bool* queries_written,
                           const RowBlock& query_grads) {
  const Scoring& scoring = context->scoring;
  const int64_t count = candidates.plain.rows.rows;
  // The loss gave the candidates that are masked a weight of zero, but for rows that have no other.
  for (int64_t i = 0; i < queries.size(); ++i) {
    const int64_t own = side->positives[i] - candidates.first;
    if (own >= 0 && own < count) tile_.grads.at(own, i) = 0;
  }
  scoring.BeginBackward(&tile_);
  scoring.QueryGradients(tile_, candidates.plain, queries,
                         {.block = query_grads, .accumulate = *queries_written, .scattered = {}});
  *queries_written = true;
  const RowBlock grads = context->arena->Rows(count, context->dim);
  scoring.CandidateGradients(tile_, candidates.plain, queries, 0,
                             {.block = grads, .scattered = {}});
  scoring.AddClosePairs(tile_, candidates.plain, queries, grads, query_grads);
  scoring.PrepareBackward(candidates.plain, grads);
  if (side->op != nullptr && !context->dynamic_operator) {
    context->operators->Backward(side->op, nullptr, candidates.input, grads);
  }
  context->rows->AddDense(side->side, candidates.first, grads);
}

void AllPass::Corrupt(StepContext* context, SideRows* candidates, SideRows* queries) {
  Arena* arena = context->arena;
  StepSide* side = candidates->side;
  const int64_t n = context->n;
  const Queries query = context->scoring.MakeQueries(queries->queries(), arena);
  const LossFunction& loss = context->loss;
  float* pos = arena->Floats(n);
  float* pos_grad = arena->Floats(n);
  std::fill_n(pos_grad, n, 0.0f);
  context->scoring.ScorePairs(query.prepared, candidates->positives(), pos);
  if (context->scores != nullptr) {
    std::copy_n(
        pos, n,
        (side->side == Side::kLhs ? context->scores->lhs_pos : context->scores->rhs_pos).begin());
  }
  loss.Positives(n, pos, context->weights, pos_grad, side->loss);
  for (int64_t i = 0; i < n; ++i) side->loss[i] += pos[i] - pos[i];  // NaN unless finite

  if (side->kind == NegativeKind::kAll) {
    const auto tile_of_loss = [&]() -> LossTile {
      return {.scores = tile_.scores,
              .grads = tile_.grads,
              .pos = pos,
              .weight = context->weights,
              .pos_grad = pos_grad,
              .loss = side->loss};
    };
    // Softmax: the largest score and the sum of exponentials of each query, then their logarithm
    // and its gradient.
    float* largest = arena->Floats(n);
    float* sum = arena->Floats(n);
    const Arena::Mark mark = arena->mark();
    if (loss.needs_whole_rows()) {
      std::fill_n(largest, PaddedDim(n), -FLT_MAX);
      std::fill_n(sum, PaddedDim(n), 0.0f);
      for (int64_t first = 0; first < side->table.count; first += kTileCandidates) {
        ScoreTile(context, *side, query, LoadTile(context, *side, first));
        side->violators += SoftmaxAccumulate(tile_.scores, pos, largest, sum);
        arena->Release(mark);
      }
      SoftmaxFinish(tile_of_loss(), largest, sum);
    }
    for (int64_t first = 0; first < side->table.count; first += kTileCandidates) {
      const Candidates tile = LoadTile(context, *side, first);
      ScoreTile(context, *side, query, tile);
      if (context->scores != nullptr) CopyScores(context, *side, first);
      if (loss.needs_whole_rows()) {
        SoftmaxGradient(tile_.scores, largest, sum, tile_.grads);
      } else {
        side->violators += loss.Negatives(tile_of_loss(), side->table.count);
      }
      if (context->backward) {
        BackwardTile(context, side, query, tile, &queries->queries_written(),
                     queries->gradients_of_queries());
      }
      arena->Release(mark);
    }
  }
  if (!context->backward) return;
  EnsureWritten(candidates);
  EnsureWritten(queries);
  context->scoring.ScorePairsBackward(query.prepared, candidates->positives(), pos_grad,
                                      queries->gradients_of_queries(),
                                      candidates->positive_grads());
}

void AllPass::Run(StepContext* context, const BatchQueries* const batch[2]) {
  const Arena::Mark mark = context->arena->mark();
  SideRows sides[2];
  for (int s = 0; s < 2; ++s) {
    sides[s] = LoadPositives(context, &context->sides[s], 0, context->n, batch[s]);
  }
  Corrupt(context, &sides[0], &sides[1]);
  Corrupt(context, &sides[1], &sides[0]);
  for (int s = 0; s < 2; ++s) FinishSide(context, &sides[s], batch[s]);
  context->arena->Release(mark);
}

}  // namespace weft
