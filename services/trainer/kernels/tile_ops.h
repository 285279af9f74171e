// Kernels over a tile of scores: what stands between the matrix products and the loss.
//
// A tile holds scores of candidates (rows) against queries (columns), with a stride that is padded
// as in row_block.h. So the scores of one query stand below each other, a vector works on as many
// queries at once as it has lanes, and sums and maxima over candidates need no horizontal step. The
// columns beyond `cols` hold anything; arrays of one value a column are allocated up to
// PaddedDim(cols), and hold anything there.
// Thread-safety: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/kernels/row_block.h"

namespace weft {

inline constexpr float kMaskedScore = -1e9f;  // PBG's: a positive against itself, padding

struct Tile {
  float* data = nullptr;
  int64_t rows = 0;  // candidates
  int64_t cols = 0;  // queries
  int64_t stride = 0;

  float* row(int64_t j) const { return data + j * stride; }
  float& at(int64_t j, int64_t i) const { return data[j * stride + i]; }
  Tile Rows(int64_t first, int64_t count) const { return {row(first), count, cols, stride}; }
};

// An element of a tile.
struct TilePair {
  int32_t row = 0;
  int32_t col = 0;
};

// dst = src^T; dst is [src.cols, src.rows].
void TransposeTile(const Tile& src, const Tile& dst);
// a += b^T, then b = a^T: gives both directions of a score the gradient of both. Square tiles.
void AddTransposed(const Tile& a, const Tile& b);

// scores += the biases of the row and of the column: with a bias, coordinate 0 of both vectors
// belongs to the score.
void AddBiases(const float* row_biases, const float* col_biases, const Tile& scores);

// Turns dot products of rows a_j and columns b_i, whose squared norms are given, into squared_l2
// scores -d2 or l2 scores -sqrt(max(d2, 1e-30)), d2 = |a|^2 + |b|^2 - 2 a.b. Where that difference
// cancels (d2 small against the norms), d2 is computed from the vectors themselves, exactly 0 for
// equal ones; these pairs are appended to `close`.
void FinishDistances(const RowBlock& a, const RowBlock& b, int64_t skip, const float* a_norms,
                     const float* b_norms, bool squared, const Tile& scores,
                     std::vector<TilePair>* close);

// Gradients of l2 or squared_l2 scores into the weights w of dL/db_i = sum_j w_ji (a_j - b_i), in
// place: grads / distance, or 2 grads. `scores`: l2 only, as FinishDistances left them. No weight
// at the clamp of l2.
void DistanceWeights(const Tile& scores, bool squared, const Tile& grads);

// out: [rows] resp. [PaddedDim(cols)].
void TileRowSums(const Tile& tile, float* out);
void TileColumnSums(const Tile& tile, float* out);

}  // namespace weft
