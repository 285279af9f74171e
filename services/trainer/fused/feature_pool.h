// FeaturePool makes tables of the featurized entities of a batch, for passes that know rows of
// tables only: row i is edge i's entity, the mean of its features' rows. Afterwards it takes the
// gradients of these rows to the features.
//
// A batch without featurized sides goes by it untouched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/feature_bags.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/row_gradients.h"
#include "services/trainer/kernels/row_block.h"

namespace weft {

// Not thread-safe: one a worker.
class FeaturePool {
 public:
  // Starts a batch: puts pooled tables, and their rows' numbers, in the place of the featurized
  // sides of `batch` and `tables`. A pooled table lives in `arena` and has no sums. max_norm > 0:
  // features' rows are limited first, in their table.
  void Pool(float max_norm, Arena* arena, EdgeBatch* batch, BatchTables* tables);

  bool pooled(Side side) const { return bags_[Index(side)] != nullptr; }
  bool any() const { return pooled(Side::kLhs) || pooled(Side::kRhs); }

  // Takes the gradients of the pooled rows, which are in `rows`, to the features: each its share.
  void Backward(const RowGradients& rows, Arena* arena);

  // After Backward: the features' rows and their gradients.
  RowGradients& features() { return features_; }
  const RowGradients& features() const { return features_; }

 private:
  static int Index(Side side) { return static_cast<int>(side); }

  const FeatureBags* bags_[2] = {nullptr, nullptr};  // by side; nullptr: not featurized
  std::span<const EntityOffset> ids_[2];             // the edges' bags
  int64_t first_slot_[2] = {0, 0};
  RowGradients features_;
  std::vector<EntityOffset> numbers_;  // 0, 1, ...
  std::vector<EntityOffset> limited_;
  std::vector<int64_t> slots_;  // where each edge's begin
};

}  // namespace weft
