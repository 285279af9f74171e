// What the tests of the kernels share: every vector instruction set in turn, drawn blocks.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "services/common/random.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/kernels/tile_ops.h"

namespace weft::testing {

inline void ForEveryTarget(const std::function<void()>& visit) {
  ASSERT_FALSE(SupportedVectorTargets().empty());
  for (const VectorTarget& target : SupportedVectorTargets()) {
    SCOPED_TRACE(target.name);
    ForceVectorTarget(target.id);
    visit();
    ForceVectorTarget(0);
  }
}

// Owns a row block. Padding is zero; everything else drawn, or `fill`.
class OwnedRows {
 public:
  OwnedRows(int64_t rows, int64_t dim, uint64_t seed) : OwnedRows(rows, dim) {
    RandomStream random(seed, RandomUse::kTest);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < dim; ++k) block_.row(i)[k] = random.Normal();
    }
  }
  OwnedRows(int64_t rows, int64_t dim)
      : values_(static_cast<size_t>((rows + 4) * RowStride(dim + 1) + kVectorFloats), 0.0f) {
    auto address = reinterpret_cast<uintptr_t>(values_.data());
    address = (address + 63) / 64 * 64;
    block_ = {reinterpret_cast<float*>(address), rows, dim, RowStride(dim + 1)};
  }
  OwnedRows(const OwnedRows&) = delete;
  OwnedRows& operator=(const OwnedRows&) = delete;

  const RowBlock& block() const { return block_; }
  float* row(int64_t i) const { return block_.row(i); }
  float& at(int64_t i, int64_t k) const { return block_.row(i)[k]; }
  Tile tile() const { return {block_.data, block_.rows, block_.dim, block_.stride}; }

 private:
  std::vector<float> values_;
  RowBlock block_;
};

}  // namespace weft::testing
