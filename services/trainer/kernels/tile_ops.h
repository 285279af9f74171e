// Kernels over a tile of scores: what stands between the GEMM and the loss.
//
// Arrays of one value a column are allocated up to PaddedDim(cols). A tile holds the scores of
// `rows` queries against `cols` candidates, row-major with a stride that is padded as in
// row_block.h. Before a loss, the columns from `cols` on are filled with kPadScore (PadTile), which
// counts for nothing in any loss, so that the kernels need no masks. Thread-safety: pure functions
// of their arguments.
#pragma once

#include <cfloat>
#include <cstdint>
#include <vector>

#include "services/trainer/kernels/row_block.h"

namespace weft {

inline constexpr float kMaskedScore = -1e9f;  // PBG's: a positive against itself, padding
inline constexpr float kPadScore = -FLT_MAX;

struct Tile {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
  float& at(int64_t i, int64_t j) const { return data[i * stride + j]; }
};

// A pair of a tile: query i, candidate j.
struct TilePair {
  int32_t i = 0;
  int32_t j = 0;
};

void PadTile(const Tile& tile, float value);

// dst = src^T; dst is [src.cols, src.rows].
void TransposeTile(const Tile& src, const Tile& dst);
// a += b^T, then b = a^T: gives both directions of a score the gradient of both. Square tiles.
void AddTransposed(const Tile& a, const Tile& b);

// scores_ij += a_i[0] + b_biases[j]: with a bias, coordinate 0 of both rows belongs to the score.
void AddBiases(const RowBlock& a, const float* b_biases, const Tile& scores);

// Turns dot products of a_i and b_j, whose squared norms are given, into squared_l2 scores -d2 or
// l2 scores -sqrt(max(d2, 1e-30)), d2 = |a_i|^2 + |b_j|^2 - 2 a_i.b_j. Where that difference
// cancels (d2 small against the norms), d2 is computed from the rows themselves, exactly 0 for
// equal rows; these pairs are appended to `close`.
void FinishDistances(const RowBlock& a, const RowBlock& b, int64_t skip, const float* a_norms,
                     const float* b_norms, bool squared, const Tile& scores,
                     std::vector<TilePair>* close);

// Gradients of l2 or squared_l2 scores into the weights w of dL/da_i = sum_j w_ij (b_j - a_i), in
// place: grads / distance, or 2 grads. `scores` as FinishDistances left them. No weight at the
// clamp of l2.
void DistanceWeights(const Tile& scores, bool squared, const Tile& grads);

// out: [rows] resp. [PaddedDim(cols)]; sums over a padded tile whose padding is zero.
void TileRowSums(const Tile& tile, float* out);
void TileColumnSums(const Tile& tile, float* out);

}  // namespace weft
