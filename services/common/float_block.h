// FloatBlock is an owned, zero-filled, two-dimensional array of float32 in row-major order.
//
// Large blocks are mapped anonymously and advised to use huge pages: gathering random rows of a
// large table is bound by TLB misses otherwise. Rows are contiguous (no padding), so a block is
// byte for byte what the embedding files hold.
//
// Thread-safety: none of its own. HOGWILD threads write rows of one block concurrently; only
// services/trainer/kernels/row_ops does so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

class FloatBlock {
 public:
  FloatBlock() = default;
  // Zero-filled. Throws std::bad_alloc, as containers do, when the memory cannot be mapped; callers
  // that can answer otherwise check sizes first.
  FloatBlock(int64_t rows, int64_t cols);
  ~FloatBlock();
  FloatBlock(FloatBlock&& other) noexcept;
  FloatBlock& operator=(FloatBlock&& other) noexcept;
  FloatBlock(const FloatBlock&) = delete;
  FloatBlock& operator=(const FloatBlock&) = delete;

  // A copy has to be asked for by name: blocks are large.
  FloatBlock Clone() const;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  int64_t size() const { return rows_ * cols_; }  // in floats
  bool empty() const { return size() == 0; }

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::span<float> span() { return {data_, static_cast<size_t>(size())}; }
  std::span<const float> span() const { return {data_, static_cast<size_t>(size())}; }
  std::span<float> row(int64_t i) { return {data_ + i * cols_, static_cast<size_t>(cols_)}; }
  std::span<const float> row(int64_t i) const {
    return {data_ + i * cols_, static_cast<size_t>(cols_)};
  }

 private:
  void Free();

  float* data_ = nullptr;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  size_t mapped_bytes_ = 0;
};

}  // namespace weft
