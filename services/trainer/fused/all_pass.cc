#include "services/trainer/fused/all_pass.h"

#include <algorithm>
#include <cfloat>

#include "services/trainer/kernels/loss_ops.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

// Whether products may read candidates in their table, and add their gradients to the table's.
bool IsDirect(const StepContext& context, const StepSide& side) {
  return context.scoring.plain() && !context.HasStaticOperator(side);
}

// A linear operator acts on the candidates anew for each block: that is to be little beside what
// the block computes.
int64_t BlockQueries(const StepContext& context, const StepSide& side, int64_t usual) {
  return context.HasStaticOperator(side) && IsLinear(side.op->kind()) ? context.n : usual;
}

}  // namespace

AllPass::Candidates AllPass::LoadTile(StepContext* context, const StepSide& side, int64_t first) {
  Arena* arena = context->arena;
  const int64_t dim = context->dim;
  const int64_t count = std::min(kTileCandidates, side.table.count - first);
  Candidates candidates;
  candidates.first = first;
  if (IsDirect(*context, side) && side.global == nullptr && CanReadInPlace(dim)) {
    candidates.plain.rows = {side.table.embeddings + first * dim, count, dim, dim};
    return candidates;
  }
  candidates.input = arena->Rows(count, dim);
  GatherRange(side.table, first, side.global, candidates.input);
  RowBlock plain = candidates.input;
  if (context->HasStaticOperator(side)) {
    plain = arena->Rows(count, dim);
    context->operators->Forward(*side.op, nullptr, candidates.input, plain);
  }
  candidates.plain = context->scoring.Allocate(plain, arena);
  context->scoring.Prepare(candidates.plain);
  return candidates;
}

void AllPass::ScoreTile(StepContext* context, const Block& block, const Candidates& candidates,
                        const Tile& scores) {
  context->scoring.AllocateTile(scores, context->arena, &tile_);
  context->scoring.ScoreRows(candidates.plain, block.queries, 0, &tile_);
  for (size_t i = 0; i < block.positives.size(); ++i) {
    const int64_t own = block.positives[i] - candidates.first;
    if (own >= 0 && own < candidates.count()) {
      scores.at(own, static_cast<int64_t>(i)) = kMaskedScore;
    }
  }
  if (context->scores == nullptr) return;
  const int64_t all = block.side->table.count;
  std::vector<float>& out =
      block.side->side == Side::kLhs ? context->scores->lhs_neg : context->scores->rhs_neg;
  TransposeTile(scores, {out.data() + block.first_query * all + candidates.first, scores.cols,
                         scores.rows, all});
}

LossTile AllPass::LossOfTile(const Block& block) const {
  LossTile loss = block.loss;
  loss.scores = tile_.scores;
  loss.grads = tile_.grads;
  return loss;
}

void AllPass::BackwardTile(StepContext* context, Block* block, const Candidates& candidates) {
  const Scoring& scoring = context->scoring;
  StepSide* side = block->side;
  const PreparedRows& rows = candidates.plain;
  // The loss gave the candidates that are masked a weight of zero, but for rows that have no other.
  for (size_t i = 0; i < block->positives.size(); ++i) {
    const int64_t own = block->positives[i] - candidates.first;
    if (own >= 0 && own < candidates.count()) tile_.grads.at(own, static_cast<int64_t>(i)) = 0;
  }
  scoring.BeginBackward(&tile_);
  scoring.QueryGradients(
      tile_, rows, block->queries,
      {.block = block->query_grads, .accumulate = block->written, .scattered = {}});
  block->written = true;
  if (IsDirect(*context, *side)) {
    const ScatteredRows targets =
        context->rows->DenseTargets(side->side, candidates.first, candidates.count());
    scoring.CandidateGradients(tile_, rows, block->queries, 0, {.block = {}, .scattered = targets});
    return;
  }
  const RowBlock grads = context->arena->Rows(candidates.count(), context->dim);
  scoring.CandidateGradients(tile_, rows, block->queries, 0, {.block = grads, .scattered = {}});
  scoring.AddClosePairs(tile_, rows, block->queries, grads, block->query_grads);
  scoring.PrepareBackward(rows, grads);
  if (context->HasStaticOperator(*side)) {
    context->operators->Backward(side->op, nullptr, candidates.input, grads);
  }
  context->rows->AddDense(side->side, candidates.first, grads);
}

// The largest score and the sum of exponentials of each query, then their logarithm and its
// gradient.
void AllPass::Softmax(StepContext* context, Block* block) {
  Arena* arena = context->arena;
  StepSide* side = block->side;
  const int64_t n = block->queries.size();
  const int64_t all = side->table.count;
  float* largest = arena->Floats(n);
  float* sum = arena->Floats(n);
  std::fill_n(largest, PaddedDim(n), -FLT_MAX);
  std::fill_n(sum, PaddedDim(n), 0.0f);
  Kept kept;
  // Of distances more would have to be kept.
  if (context->backward && !context->scoring.distance()) {
    const int64_t room = kKeptFloats / RowStride(n) / kTileCandidates * kTileCandidates;
    kept.exponentials = arena->Scores(std::min(all, room), n);
    const int64_t tiles = (kept.exponentials.rows + kTileCandidates - 1) / kTileCandidates;
    kept.largest = arena->Floats(tiles * kept.exponentials.stride);
  }
  const Arena::Mark mark = arena->mark();
  const auto new_tile = [&](const Candidates& tile) { return arena->Scores(tile.count(), n); };
  for (int64_t first = 0; first < all; first += kTileCandidates) {
    const Candidates tile = LoadTile(context, *side, first);
    const bool keep = kept.Has(tile);
    ScoreTile(context, *block, tile, keep ? kept.TileOf(tile) : new_tile(tile));
    side->violators += SoftmaxAccumulate(tile_.scores, block->loss.pos, largest, sum);
    if (keep) std::copy_n(largest, PaddedDim(n), kept.LargestOf(tile));
    arena->Release(mark);
  }
  SoftmaxFinish(LossOfTile(*block), largest, sum);
  if (!context->backward) return;
  for (int64_t first = 0; first < all; first += kTileCandidates) {
    const Candidates tile = LoadTile(context, *side, first);
    if (kept.Has(tile)) {
      context->scoring.AllocateTile(kept.TileOf(tile), arena, &tile_);
      SoftmaxGradientOfExponentials(tile_.grads, kept.LargestOf(tile), largest, sum);
    } else {
      ScoreTile(context, *block, tile, new_tile(tile));
      SoftmaxGradientOfScores(tile_.grads, largest, sum);
    }
    BackwardTile(context, block, tile);
    arena->Release(mark);
  }
}

void AllPass::OtherLoss(StepContext* context, Block* block) {
  Arena* arena = context->arena;
  StepSide* side = block->side;
  const Arena::Mark mark = arena->mark();
  for (int64_t first = 0; first < side->table.count; first += kTileCandidates) {
    const Candidates tile = LoadTile(context, *side, first);
    ScoreTile(context, *block, tile, arena->Scores(tile.count(), block->queries.size()));
    side->violators += context->loss.Negatives(LossOfTile(*block), side->table.count);
    if (context->backward) BackwardTile(context, block, tile);
    arena->Release(mark);
  }
}

void AllPass::Corrupt(StepContext* context, SideRows* candidates, SideRows* queries) {
  Arena* arena = context->arena;
  StepSide* side = candidates->side;
  const int64_t n = context->n;
  const PreparedRows query = queries->queries();
  const LossFunction& loss = context->loss;
  float* pos = arena->Floats(n);
  float* pos_grad = arena->Floats(n);
  std::fill_n(pos_grad, n, 0.0f);
  context->scoring.ScorePairs(query, candidates->positives(), pos);
  if (context->scores != nullptr) {
    std::copy_n(
        pos, n,
        (side->side == Side::kLhs ? context->scores->lhs_pos : context->scores->rhs_pos).begin());
  }
  loss.Positives(n, pos, context->weights, pos_grad, side->loss);
  for (int64_t i = 0; i < n; ++i) side->loss[i] += pos[i] - pos[i];  // NaN unless finite

  if (side->kind == NegativeKind::kAll && side->table.count > 0) {
    const Arena::Mark mark = arena->mark();
    const int64_t step = BlockQueries(*context, *side, kBlockQueries);
    for (int64_t first = 0; first < n; first += step) {
      const int64_t count = std::min(step, n - first);
      Block block{.side = side,
                  .queries = context->scoring.MakeQueries(query.Slice(first, count), arena),
                  .positives = side->positives.subspan(first, count),
                  .first_query = first,
                  .loss = {.scores = {},
                           .grads = {},
                           .pos = pos + first,
                           .weight = context->weights + first,
                           .pos_grad = pos_grad + first,
                           .loss = side->loss + first},
                  .query_grads = {},
                  .written = queries->queries_written()};
      if (context->backward) {
        block.query_grads = queries->gradients_of_queries().Slice(first, count);
      }
      loss.needs_whole_rows() ? Softmax(context, &block) : OtherLoss(context, &block);
      arena->Release(mark);
    }
    queries->queries_written() = context->backward;
  }
  if (!context->backward) return;
  EnsureWritten(candidates);
  EnsureWritten(queries);
  context->scoring.ScorePairsBackward(query, candidates->positives(), pos_grad,
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
