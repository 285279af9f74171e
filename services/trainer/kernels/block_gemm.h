// The matrix products of a step, over padded row blocks: a register-blocked kernel of our own.
//
// A step's products are small (50 x 100 x 100 in the default configuration). oneDNN copies both
// operands into its own layout first, which at these sizes costs up to a third of the time; row
// blocks are already laid out as the kernel wants them. Measurements: docs/adr/0008.
//
// An element of the result is a sum of chains of multiply-adds, each over a run of k in ascending
// order; the runs depend on k alone. So its bits depend on its row and its column, never on where
// it stands.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/row_block.h"

namespace weft {

// Rows that will be wanted soon; a product asks for them while it computes, a cache line for every
// so many of its operations, so that memory works while the processor does. Not several lines at
// once: a core has few buffers for lines on their way, and the product needs them too.
struct PrefetchQueue {
  const float* const* rows = nullptr;
  int64_t next = 0;  // the rows in [next, end) were not asked for yet
  int64_t end = 0;
  int64_t row_floats = 0;
  int64_t position = 0;  // in row `next`, in floats: what is before was asked for
  double lines_per_flop = 0;
  double credit = 0;  // lines

  // Begins to ask for rows [first, last), during the `flops` operations that follow.
  void Begin(int64_t first, int64_t last, double flops) {
    next = first;
    end = last;
    position = 0;
    credit = 0;
    lines_per_flop = static_cast<double>((last - first) * (row_floats / 16 + 1)) / flops;
  }
};

// Where the rows of a result go when they do not stand in a block. No row occurs twice.
struct ScatteredRows {
  float* const* rows = nullptr;    // [m]
  const uint8_t* fresh = nullptr;  // [m]; whether the row is to be overwritten rather than added to
  bool* finite = nullptr;          // becomes false when a result is not finite
};

// C[m, n] = A[m, k] B[k, n], or C += A B. A's element (i, l) is a[i * a_row + l * a_col], so that a
// transposed A costs nothing. B and C are row-major; rows of B must be readable (unless
// CanReadInPlace(n)), and rows of C writable, up to PaddedDim(n): those columns of C become
// anything.
struct BlockProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t a_col = 0;
  const float* b = nullptr;
  int64_t b_stride = 0;
  // Where the rows of A [m] or B [k] are, if they stand anywhere: instead of `a` and `a_row`, or
  // `b` and `b_stride`. Of such rows of B, whole vectors are read if CanReadInPlace(n).
  const float* const* a_places = nullptr;
  const float* const* b_places = nullptr;
  float* c = nullptr;
  int64_t c_stride = 0;
  bool accumulate = false;
  // B once more with its columns as rows, [n, k], if it is at hand; only with a_col = 1, into `c`,
  // and without `accumulate`. One or two columns beyond whole vectors are dot products then: a
  // vector for them would be nearly empty. So these columns' bits may differ from the others'.
  const float* b_columns = nullptr;
  int64_t b_columns_stride = 0;
  ScatteredRows scattered;  // if it has rows, instead of `c`, `c_stride` and `accumulate`
  PrefetchQueue* prefetch = nullptr;
};

// Whether rows of `n` floats can be B's with nothing behind them that may be read.
constexpr bool CanReadInPlace(int64_t n) { return n % 16 == 0 || n % 16 == 4 || n % 16 == 8; }

void MultiplyBlocks(const BlockProduct& product);

// out[j, i] = x[i, j]: [dim, rows], with rows of `out_stride`. Whole blocks of 4 x 4 are read and
// written: the arrays must have them.
void TransposeRows(const RowBlock& x, float* out, int64_t out_stride);

}  // namespace weft
