// Arena hands out the workspace of one step: aligned blocks of floats that live until the next
// Begin. After the first batches it allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/float_block.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/kernels/tile_ops.h"

namespace weft {

// Not thread-safe: one a worker.
class Arena {
 public:
  // Takes back everything.
  void Begin() {
    block_ = 0;
    used_ = 0;
  }

  // `count` floats, aligned to 64 bytes, with a vector's width of slack behind them. Not cleared.
  float* Floats(int64_t count) {
    const int64_t size = PaddedDim(count) + kVectorFloats;
    // What is large has a block of its own, so that everything stays where it was when it grows.
    const bool large = size > kBlockFloats;
    if (block_ < blocks_.size() && used_ > 0 && (large || used_ + size > blocks_[block_].size())) {
      ++block_;
      used_ = 0;
    }
    if (block_ == blocks_.size()) blocks_.emplace_back();
    if (used_ + size > blocks_[block_].size()) Enlarge(size, &blocks_[block_]);
    float* taken = blocks_[block_].data() + used_;
    used_ = large ? blocks_[block_].size() : used_ + size;
    return taken;
  }

  // How many floats it holds, taken or not.
  int64_t capacity() const {
    int64_t floats = 0;
    for (const FloatBlock& block : blocks_) floats += block.size();
    return floats;
  }

  // Takes back what was taken since `mark`.
  struct Mark {
    size_t block;
    int64_t used;
  };
  Mark mark() const { return {block_, used_}; }
  void Release(Mark mark) {
    block_ = mark.block;
    used_ = mark.used;
  }

  // With a row's and a column's worth of slack behind: rows may be read, and written, from their
  // second column on as if they began there, and up to 3 rows beyond the last be read.
  RowBlock Rows(int64_t rows, int64_t dim) {
    const int64_t stride = RowStride(dim + 1);
    return {Floats((rows + 3) * stride), rows, dim, stride};
  }

  Tile Scores(int64_t candidates, int64_t queries) {
    const int64_t stride = RowStride(queries);
    return {Floats(candidates * stride), candidates, queries, stride};
  }

 private:
  static constexpr int64_t kBlockFloats = int64_t{2} << 20;  // 8 MiB: huge pages

  // Of a block of which nothing is taken. Batches differ a little in what they need, so a large one
  // has some room: the next ones need no other.
  static void Enlarge(int64_t size, FloatBlock* block) {
    *block = FloatBlock();  // first, so that there are never both
    *block = FloatBlock(1, size > kBlockFloats ? size + size / 8 : kBlockFloats);
  }

  std::vector<FloatBlock> blocks_;
  size_t block_ = 0;
  int64_t used_ = 0;
};

}  // namespace weft
