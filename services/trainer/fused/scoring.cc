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

void Scoring::AllocateTile(int64_t queries, int64_t candidates, Arena* arena,
                           ScoredTile* tile) const {
  tile->scores = arena->Scores(queries, candidates);
  tile->grads = tile->scores;
  if (comparator_ == Comparator::kL2) tile->distances = arena->Scores(queries, candidates);
  if (bias()) {
    tile->row_sums = arena->Floats(queries);
    tile->column_sums = arena->Floats(candidates);
  }
  if (distance()) {
    tile->row_weights = arena->Floats(queries);
    tile->column_weights = arena->Floats(candidates);
  }
  tile->close.clear();
  tile->num_mirrored = 0;
}

void Scoring::ScoreColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                           ScoredTile* tile) const {
  MultiplyColumns(a, b, column, tile);
  FinishColumns(a, b, column, tile);
}

void Scoring::MultiplyColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                              ScoredTile* tile) const {
  gemm_->Multiply({.transpose_b = true,
                   .m = a.rows.rows,
                   .n = b.rows.rows,
                   .k = a.rows.dim - skip_,
                   .a_stride = a.rows.stride,
                   .b_stride = b.rows.stride,
                   .c_stride = tile->scores.stride},
                  a.rows.data + skip_, b.rows.data + skip_, tile->scores.data + column);
}

void Scoring::FinishColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                            ScoredTile* tile) const {
  const Tile scores{tile->scores.data + column, a.rows.rows, b.rows.rows, tile->scores.stride};
  if (distance()) {
    const size_t before = tile->close.size();
    FinishDistances(a.rows, b.rows, skip_, a.norms, b.norms, comparator_ == Comparator::kSquaredL2,
                    scores, &tile->close);
    for (size_t p = before; p < tile->close.size(); ++p) {
      tile->close[p].j += static_cast<int32_t>(column);
    }
  }
  if (tile->distances.data != nullptr) {
    for (int64_t i = 0; i < scores.rows; ++i) {
      std::copy_n(scores.row(i), scores.cols, tile->distances.row(i) + column);
    }
  }
  if (bias()) AddBiases(a.rows, b.biases, scores);
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
    float& weight = tile->grads.at(pair.i, pair.j);
    tile->close_weights.push_back(weight);
    weight = 0;
  }
  TileRowSums(tile->grads, tile->row_weights);
  TileColumnSums(tile->grads, tile->column_weights);
}

void Scoring::QueryGradients(const ScoredTile& tile, const PreparedRows& a, const PreparedRows& b,
                             bool accumulate, const RowBlock& grads) const {
  const float* sums = tile.row_sums;
  if (bias()) {
    for (int64_t i = 0; i < grads.rows; ++i) {
      grads.row(i)[0] = sums[i] + (accumulate ? grads.row(i)[0] : 0);
    }
  }
  gemm_->Multiply({.m = grads.rows,
                   .n = grads.dim - skip_,
                   .k = b.rows.rows,
                   .a_stride = tile.grads.stride,
                   .b_stride = b.rows.stride,
                   .c_stride = grads.stride,
                   .accumulate = accumulate},
                  tile.grads.data, b.rows.data + skip_, grads.data + skip_);
  if (distance()) SubtractScaledRows(a.rows, tile.row_weights, skip_, grads);
}

void Scoring::CandidateGradients(const ScoredTile& tile, const PreparedRows& a,
                                 const PreparedRows& b, int64_t column, bool accumulate,
                                 const RowBlock& grads) const {
  if (bias()) {
    const float* sums = tile.column_sums + column;
    for (int64_t j = 0; j < grads.rows; ++j) {
      grads.row(j)[0] = sums[j] + (accumulate ? grads.row(j)[0] : 0);
    }
  }
  gemm_->Multiply({.transpose_a = true,
                   .m = grads.rows,
                   .n = grads.dim - skip_,
                   .k = a.rows.rows,
                   .a_stride = tile.grads.stride,
                   .b_stride = a.rows.stride,
                   .c_stride = grads.stride,
                   .accumulate = accumulate},
                  tile.grads.data + column, a.rows.data + skip_, grads.data + skip_);
  if (distance()) SubtractScaledRows(b.rows, tile.column_weights + column, skip_, grads);
}

void Scoring::AddClosePairs(const ScoredTile& tile, const PreparedRows& a, const PreparedRows& b,
                            const RowBlock& a_grads, const RowBlock& b_grads) const {
  if (!distance()) return;
  const size_t own = tile.close.size() - static_cast<size_t>(tile.num_mirrored);
  for (size_t p = 0; p < own; ++p) {
    const auto [i, j] = tile.close[p];
    const float weight = tile.close_weights[p];
    if (weight == 0) continue;
    AddScaledDifference(b.rows.row(j), a.rows.row(i), weight, a.rows.dim, skip_, a_grads.row(i));
    AddScaledDifference(a.rows.row(i), b.rows.row(j), weight, a.rows.dim, skip_, b_grads.row(j));
  }
}

}  // namespace weft
