// RowBlock is a borrowed block of rows of floats in a workspace, laid out for the kernels.
//
// Rows start at multiples of 64 bytes. The columns from `dim` up to PaddedDim(dim) belong to the
// row and are zero, so that kernels can run over whole vectors of every width; whoever writes a
// row by other means than these kernels (a GEMM) clears them (ClearPadding).
#pragma once

#include <cstdint>

namespace weft {

inline constexpr int64_t kVectorFloats = 16;  // of the widest target

// `dim` rounded up to whole vectors.
constexpr int64_t PaddedDim(int64_t dim) {
  return (dim + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
}

// Distance of rows, in floats. Multiples of 1 KiB are avoided: rows at such distances compete for
// few sets of the first-level cache.
constexpr int64_t RowStride(int64_t dim) {
  const int64_t padded = PaddedDim(dim);
  return padded % 256 == 0 ? padded + kVectorFloats : padded;
}

struct RowBlock {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t dim = 0;
  int64_t stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
  RowBlock Slice(int64_t first, int64_t count) const {
    return {data + first * stride, count, dim, stride};
  }
};

}  // namespace weft
