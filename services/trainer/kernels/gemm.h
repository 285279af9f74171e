// Gemm multiplies small row-major matrices of floats on the calling thread alone, through oneDNN.
//
// oneDNN offers two ways: dnnl_sgemm, and a matmul primitive made once for a shape. Which one is
// faster depends on the CPU; the choice is made by the kind of kernel that the primitive got, never
// by timing, so that equal runs have equal bits.
//
// Thread-safety: none; one Gemm a thread. Primitives are never shared between threads, and their
// scratchpad belongs to this object.
#pragma once

#include <cstdint>
#include <memory>

namespace weft {

// C[m, n] = A B (+ C when `accumulate`). A is stored as [m, k] or, transposed, as [k, m]; B as
// [k, n] or, transposed, as [n, k]. Strides in floats between stored rows.
struct GemmShape {
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  bool accumulate = false;

  bool operator==(const GemmShape&) const = default;
};

// The two ways, for the benchmark and the test that compare them.
enum class GemmMethod { kSgemm, kPrimitive };

class Gemm {
 public:
  Gemm();
  ~Gemm();
  Gemm(Gemm&&) noexcept;
  Gemm& operator=(Gemm&&) noexcept;

  // Empty products (k = 0) give zero. Allocates only for a shape that it has not seen.
  void Multiply(const GemmShape& shape, const float* a, const float* b, float* c);

  void MultiplyBy(GemmMethod method, const GemmShape& shape, const float* a, const float* b,
                  float* c);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
