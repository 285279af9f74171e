// LossFunction applies the model's loss to tiles of scores. Formulas: batch_step.h, point 4.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/loss_ops.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

class LossFunction {
 public:
  explicit LossFunction(const ModelSpec& spec) : kind_(spec.loss), margin_(spec.margin) {}

  // The loss of a whole row needs all of its scores before any gradient.
  bool needs_whole_rows() const { return kind_ == Loss::kSoftmax; }

  // One side's positives, without their negatives.
  void Positives(int64_t n, const float* pos, const float* weight, float* pos_grad,
                 float* loss) const {
    if (kind_ == Loss::kLogistic) LogisticPositives(n, pos, weight, pos_grad, loss);
  }

  // All negatives of a tile; `num_neg` counts masked and padding ones as well. Returns the
  // violators.
  int64_t Negatives(const LossTile& tile, int64_t num_neg) const {
    switch (kind_) {
      case Loss::kRanking:
        return RankingLoss(tile, margin_);
      case Loss::kLogistic:
        return LogisticLoss(tile, 1.0f / static_cast<float>(num_neg));
      case Loss::kSoftmax:
      case Loss::kCustom:
        break;
    }
    return SoftmaxLoss(tile);
  }

 private:
  Loss kind_;
  float margin_;
};

}  // namespace weft
