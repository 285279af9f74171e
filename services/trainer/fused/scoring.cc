#include "services/trainer/fused/scoring.h"

#include <algorithm>
#include <cmath>

#include "services/trainer/kernels/vector_ops.h"

namespace weft {
PreparedRows Scoring::Allocate(const RowBlock& rows, Arena* arena) const {
  PreparedRows x{.rows = rows};
  if (distance()) x.norms = arena->Floats(rows.rows);
  if (normalizes()) x.inverses = arena->Floats(rows.rows);
  if (bias()) x.biases = arena->Floats(rows.rows);
  return x;
}

void Scoring::Prepare(const PreparedRows& x) const {
  if (bias()) {
    for (int64_t i = 0; i < x.rows.rows; ++i) x.biases[i] = x.rows.row(i)[0];
  }
  if (normalizes()) NormalizeRows(x.rows, skip_, x.inverses);
  if (distance()) SquaredNorms(x.rows, skip_, x.norms);
}

void Scoring::PrepareBackward(const PreparedRows& x, const RowBlock& grads) const {
  if (!normalizes()) return;
  ClearPadding(grads);
  NormalizeRowsBackward(x.rows, skip_, x.inverses, grads);
}

void Scoring::ScorePairs(const PreparedRows& a, const PreparedRows& b, float* scores) const {
  if (distance()) {
    RowSquaredDistances(a.rows, b.rows, skip_, scores);
  } else {
    RowDots(a.rows, b.rows, skip_, scores);
  }
  for (int64_t i = 0; i < a.rows.rows; ++i) {
    if (comparator_ == Comparator::kSquaredL2) scores[i] = -scores[i];
    // Not max(), which would hide NaN.
    if (comparator_ == Comparator::kL2) {
      scores[i] = scores[i] < 1e-30f ? -1e-15f : -std::sqrt(scores[i]);
    }
    if (bias()) scores[i] += a.biases[i] + b.biases[i];
  }
}

void Scoring::ScorePairsBackward(const PreparedRows& a, const PreparedRows& b,
                                 const float* score_grads, const RowBlock& a_grads,
                                 const RowBlock& b_grads) const {
  const int64_t dim = a.rows.dim;
  for (int64_t i = 0; i < a.rows.rows; ++i) {
    const float g = score_grads[i];
    if (bias()) {
      a_grads.row(i)[0] += g;
      b_grads.row(i)[0] += g;
    }
    const float* x = a.rows.row(i);
    const float* y = b.rows.row(i);
    if (!distance()) {
      AddScaledRow(y, g, dim, skip_, a_grads.row(i));
      AddScaledRow(x, g, dim, skip_, b_grads.row(i));
      continue;
    }
    float weight = 2 * g;
    if (comparator_ == Comparator::kL2) {
      const float d2 = SquaredDistance(x, y, dim, skip_);
      weight = d2 < 1e-30f ? 0 : g / std::sqrt(d2);
    }
    AddScaledDifference(y, x, weight, dim, skip_, a_grads.row(i));
    AddScaledDifference(x, y, weight, dim, skip_, b_grads.row(i));
  }
}

Queries Scoring::MakeQueries(const PreparedRows& rows, Arena* arena) const {
  Queries queries{.prepared = rows, .transposed = nullptr, .stride = RowStride(rows.rows.rows)};
  RowBlock compared = rows.rows;
  compared.data += skip_;
  compared.dim -= skip_;
  queries.transposed = arena->Floats(PaddedDim(compared.dim) * queries.stride);
  TransposeRows(compared, queries.transposed, queries.stride);
  return queries;
}

void Scoring::AllocateTile(const Tile& scores, Arena* arena, ScoredTile* tile) const {
  tile->scores = scores;
  tile->grads = scores;
  if (comparator_ == Comparator::kL2) tile->distances = arena->Scores(scores.rows, scores.cols);
  if (bias()) {
    tile->row_sums = arena->Floats(scores.rows);
    tile->column_sums = arena->Floats(scores.cols);
  }
  if (distance()) {
    tile->row_weights = arena->Floats(scores.rows);
    tile->column_weights = arena->Floats(scores.cols);
  }
  tile->close.clear();
  tile->num_mirrored = 0;
}

void Scoring::ScoreRows(const PreparedRows& candidates, const Queries& queries, int64_t first,
                        ScoredTile* tile) const {
  const RowBlock& rows = candidates.rows;
  const PreparedRows& prepared = queries.prepared;
  const Tile scores = tile->scores.Rows(first, rows.rows);
  MultiplyBlocks({.m = rows.rows,
                  .n = queries.size(),
                  .k = rows.dim - skip_,
                  .a = rows.data + skip_,
                  .a_row = rows.stride,
                  .a_col = 1,
                  .b = queries.transposed,
                  .b_stride = queries.stride,
                  .a_places = candidates.places,
                  .c = scores.data,
                  .c_stride = scores.stride,
                  .accumulate = false,
                  .b_columns = queries_stand_alone_ ? prepared.rows.data + skip_ : nullptr,
                  .b_columns_stride = prepared.rows.stride,
                  .scattered = {},
                  .prefetch = prefetch_});
  if (distance()) {
    const size_t before = tile->close.size();
    FinishDistances(rows, prepared.rows, skip_, candidates.norms, prepared.norms,
                    comparator_ == Comparator::kSquaredL2, scores, &tile->close);
    for (size_t p = before; p < tile->close.size(); ++p) {
      tile->close[p].row += static_cast<int32_t>(first);
    }
  }
  if (comparator_ == Comparator::kL2) {
    for (int64_t j = 0; j < scores.rows; ++j) {
      std::copy_n(scores.row(j), scores.cols, tile->distances.row(first + j));
    }
  }
  if (bias()) AddBiases(candidates.biases, prepared.biases, scores);
}

void Scoring::BeginBackward(ScoredTile* tile) const {
  if (bias()) {
    TileRowSums(tile->grads, tile->row_sums);
    TileColumnSums(tile->grads, tile->column_sums);
  }
  if (!distance()) return;
  DistanceWeights(tile->distances, comparator_ == Comparator::kSquaredL2, tile->grads);
  tile->close_weights.clear();
  for (const TilePair& pair : tile->close) {
    float& weight = tile->grads.at(pair.row, pair.col);
    tile->close_weights.push_back(weight);
    weight = 0;
  }
  TileRowSums(tile->grads, tile->row_weights);
  TileColumnSums(tile->grads, tile->column_weights);
}

namespace {

// The gradients of the biases, which are coordinate 0 of the rows.
void SetBiasGradients(const float* sums, bool accumulate, const RowBlock& grads) {
  for (int64_t i = 0; i < grads.rows; ++i) {
    grads.row(i)[0] = sums[i] + (accumulate ? grads.row(i)[0] : 0);
  }
}

}  // namespace

void Scoring::QueryGradients(const ScoredTile& tile, const PreparedRows& candidates,
                             const Queries& queries, const GradientTarget& target) const {
  const RowBlock& grads = target.block;
  if (bias()) SetBiasGradients(tile.column_sums, target.accumulate, grads);
  MultiplyBlocks({.m = queries.size(),
                  .n = candidates.rows.dim - skip_,
                  .k = candidates.rows.rows,
                  .a = tile.grads.data,
                  .a_row = 1,
                  .a_col = tile.grads.stride,
                  .b = candidates.rows.data + skip_,
                  .b_stride = candidates.rows.stride,
                  .b_places = candidates.places,
                  .c = grads.data + skip_,
                  .c_stride = grads.stride,
                  .accumulate = target.accumulate,
                  .scattered = target.scattered,
                  .prefetch = prefetch_});
  if (distance()) SubtractScaledRows(queries.prepared.rows, tile.column_weights, skip_, grads);
}

void Scoring::CandidateGradients(const ScoredTile& tile, const PreparedRows& candidates,
                                 const Queries& queries, int64_t first,
                                 const GradientTarget& target) const {
  const RowBlock& grads = target.block;
  if (bias()) SetBiasGradients(tile.row_sums + first, target.accumulate, grads);
  const RowBlock& rows = queries.prepared.rows;
  MultiplyBlocks({.m = candidates.rows.rows,
                  .n = rows.dim - skip_,
                  .k = rows.rows,
                  .a = tile.grads.row(first),
                  .a_row = tile.grads.stride,
                  .a_col = 1,
                  .b = rows.data + skip_,
                  .b_stride = rows.stride,
                  .c = grads.data + skip_,
                  .c_stride = grads.stride,
                  .accumulate = target.accumulate,
                  .scattered = target.scattered,
                  .prefetch = prefetch_});
  if (distance()) SubtractScaledRows(candidates.rows, tile.row_weights + first, skip_, grads);
}

void Scoring::AddClosePairs(const ScoredTile& tile, const PreparedRows& candidates,
                            const Queries& queries, const RowBlock& candidate_grads,
                            const RowBlock& query_grads) const {
  if (!distance()) return;
  const size_t own = tile.close.size() - static_cast<size_t>(tile.num_mirrored);
  for (size_t p = 0; p < own; ++p) {
    const auto [j, i] = tile.close[p];
    const float weight = tile.close_weights[p];
    if (weight == 0) continue;
    const float* candidate = candidates.rows.row(j);
    const float* query = queries.prepared.rows.row(i);
    const int64_t dim = candidates.rows.dim;
    AddScaledDifference(candidate, query, weight, dim, skip_, query_grads.row(i));
    AddScaledDifference(query, candidate, weight, dim, skip_, candidate_grads.row(j));
  }
}

}  // namespace weft
