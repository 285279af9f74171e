// The losses over a tile of scores: loss, its gradient, violators and the test for finiteness, in
// one pass each. Formulas: batch_step.h, point 4.
//
// A tile must be padded with kPadScore (tile_ops.h). Scores that are not finite make the loss of
// their row NaN on every instruction set: Highway's Exp(NaN) is 0 and its Max and Log hide NaN too,
// so the kernels carry (x - x) along beside them.
// Thread-safety: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/tile_ops.h"

namespace weft {

// Scores of negatives and the positives that they are held against, in, and gradients, out.
struct LossTile {
  Tile scores;                    // [rows, cols]
  Tile grads;                     // as scores, or the same tile; its padding becomes 0
  const float* pos = nullptr;     // [rows]
  const float* weight = nullptr;  // [rows]
  float* pos_grad = nullptr;      // [rows]; added to
  float* row_loss = nullptr;      // [rows]; added to
  float* scratch = nullptr;       // [3, PaddedDim(rows)]
};

// Returns the number of violators: negatives that score above their positive.
int64_t RankingLoss(const LossTile& tile, float margin);
int64_t SoftmaxLoss(const LossTile& tile);
// The negatives' part, each weighing `negative_weight` of an edge's weight.
int64_t LogisticLoss(const LossTile& tile, float negative_weight);
// The positives' part. n values each; pos_grad and row_loss are added to.
void LogisticPositives(int64_t n, const float* pos, const float* weight, float* pos_grad,
                       float* row_loss);

// Softmax over candidates that come in several tiles. First every tile goes through
// SoftmaxAccumulate, which keeps the largest score and the sum of exp(score - largest) of each row
// (initially kPadScore and 0); then SoftmaxFinish turns these into the loss and `scale`, and
// SoftmaxGradient gives the gradients of a tile.
int64_t SoftmaxAccumulate(const Tile& scores, const float* pos, float* largest, float* sum);
// log_sum: [rows], the logarithm of all exponentials' sum; scale: [rows], its gradient. Both may be
// the arrays `largest` and `sum`.
void SoftmaxFinish(int64_t n, const float* pos, const float* weight, const float* largest,
                   const float* sum, float* log_sum, float* scale, float* pos_grad,
                   float* row_loss);
void SoftmaxGradient(const Tile& scores, const float* log_sum, const float* scale,
                     const Tile& grads);

}  // namespace weft
