// The losses over a tile of scores: loss, its gradient, violators and the test for finiteness.
// Formulas: batch_step.h, point 4.
//
// A score that is not finite makes the loss of its query NaN on every instruction set:
// exponentials, maxima and logarithms of the kernels hide NaN, so 0 * x is carried along beside
// them. Thread-safety: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/tile_ops.h"

namespace weft {

// Scores of negatives and the positives that they are held against, in, and gradients, out. Arrays
// of one value a query ([cols]) are allocated up to PaddedDim(cols).
struct LossTile {
  Tile scores;                    // [negatives, queries]
  Tile grads;                     // as scores, or the same tile
  const float* pos = nullptr;     // [cols]
  const float* weight = nullptr;  // [cols]
  float* pos_grad = nullptr;      // [cols]; added to
  float* loss = nullptr;          // [cols]; added to, not written beyond `cols`
};

// Returns the number of violators: negatives that score above their positive.
int64_t RankingLoss(const LossTile& tile, float margin);
int64_t SoftmaxLoss(const LossTile& tile);
// The negatives' part, each weighing `negative_weight` of an edge's weight.
int64_t LogisticLoss(const LossTile& tile, float negative_weight);
// The positives' part. n values each; pos_grad and loss are added to.
void LogisticPositives(int64_t n, const float* pos, const float* weight, float* pos_grad,
                       float* loss);

// Softmax over candidates that come in several tiles. First every tile goes through
// SoftmaxAccumulate, which keeps the largest score so far and the sum of exp(score - largest) of
// each query (both [PaddedDim(cols)], initially -FLT_MAX and 0) and leaves exp(score - largest) in
// the tile; then SoftmaxFinish turns these into the loss and the two arrays that are needed for a
// tile's gradients. Those come, in place, from the exponentials and what `largest` was after this
// tile, or from the scores, computed anew.
int64_t SoftmaxAccumulate(const Tile& scores, const float* pos, float* largest, float* sum);
// In: largest, sum. Out: the logarithm of the exponentials' sum, and its gradient. Of the tile's
// scores only `cols` is looked at.
void SoftmaxFinish(const LossTile& tile, float* largest_to_log_sum, float* sum_to_scale);
void SoftmaxGradientOfExponentials(const Tile& exponentials, const float* largest,
                                   const float* log_sum, const float* scale);
void SoftmaxGradientOfScores(const Tile& scores, const float* log_sum, const float* scale);

}  // namespace weft
