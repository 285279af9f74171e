#include "services/trainer/kernels/block_gemm.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/block_gemm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

constexpr int kLanes = static_cast<int>(hn::MaxLanes(Floats()));

// The registers hold kRows x kVectors accumulators, a row of B and one element of A.
constexpr int kMaxVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr int RowsFor(int vectors) {
  if (HWY_TARGET <= HWY_AVX3) return vectors == 4 ? 6 : vectors == 3 ? 8 : 12;
  return vectors == 2 ? 6 : 12;
}
// The next smaller kernel, for what is left of the rows.
constexpr int FewerRows(int rows) { return rows > 8 ? 8 : rows > 4 ? 4 : rows > 2 ? 2 : 1; }

constexpr int64_t kMaxRun = 128;  // of k; keeps a panel of B in the first-level cache

// A run of k of a product, and a panel of its columns.
struct Part {
  const float* a = nullptr;
  const float* b = nullptr;
  int64_t first_column = 0;  // of C
  int64_t k = 0;
  bool first = false;  // run of k
  bool last = false;
};

// Rows i, i + 1, ..., i + kRows - 1 of C by kFull whole vectors and, if kTail > 0, one of kTail
// lanes.
template <int kRows, int kFull, int kTail>
HWY_NOINLINE void Micro(const BlockProduct& p, const Part& part, int64_t first_row) {
  const Floats d;
  const hn::CappedTag<float, kTail == 0 ? 1 : kTail> dt;
  using Tail = hn::Vec<decltype(dt)>;
  constexpr int kSpace = kFull == 0 ? 1 : kFull;
  const bool scattered = p.scattered.rows != nullptr;
  float* c[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    float* row = scattered ? p.scattered.rows[first_row + i] : p.c + (first_row + i) * p.c_stride;
    c[i] = row + part.first_column;
  }
  Vec sum[kRows][kSpace];
  Tail tail[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) sum[i][j] = hn::Zero(d);
    if constexpr (kTail > 0) tail[i] = hn::Zero(dt);
  }
  const float* a = part.a + first_row * p.a_row;
  const float* b = part.b;
  const int64_t a_row = p.a_row;
  const int64_t a_col = p.a_col;
  const int64_t b_stride = p.b_stride;
  for (int64_t l = part.k; l > 0; --l) {
    Vec bv[kSpace];
    Tail bt = hn::Zero(dt);
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
    if constexpr (kTail > 0) bt = hn::LoadU(dt, b + kFull * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec av = hn::Set(d, a[i * a_row]);
#pragma GCC unroll 16
      for (int j = 0; j < kFull; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
      if constexpr (kTail > 0) tail[i] = hn::MulAdd(hn::Set(dt, a[i * a_row]), bt, tail[i]);
    }
    a += a_col;
    b += b_stride;
  }
  // The sum over this run is added as a whole to what was there.
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const bool fresh = scattered ? p.scattered.fresh[first_row + i] != 0 : !p.accumulate;
    if (!part.first || !fresh) {
#pragma GCC unroll 16
      for (int j = 0; j < kFull; ++j) {
        sum[i][j] = hn::Add(sum[i][j], hn::LoadU(d, c[i] + j * kLanes));
      }
      if constexpr (kTail > 0) tail[i] = hn::Add(tail[i], hn::LoadU(dt, c[i] + kFull * kLanes));
    }
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) hn::StoreU(sum[i][j], d, c[i] + j * kLanes);
    if constexpr (kTail > 0) hn::StoreU(tail[i], dt, c[i] + kFull * kLanes);
  }
  if (!scattered || !part.last) return;
  Vec bad = hn::Zero(d);
  Tail bad_tail = hn::Zero(dt);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) bad = hn::Add(bad, NotFinite(sum[i][j]));
    if constexpr (kTail > 0) bad_tail = hn::Add(bad_tail, hn::Sub(tail[i], tail[i]));
  }
  const bool finite = hn::AllTrue(d, hn::Eq(bad, hn::Zero(d))) &&
                      (kTail == 0 || hn::AllTrue(dt, hn::Eq(bad_tail, hn::Zero(dt))));
  if (!finite) *p.scattered.finite = false;
}

HWY_INLINE void Prefetch(PrefetchQueue* queue, double flops) {
  queue->credit += flops;
  while (queue->credit >= queue->flops_per_row && queue->next < queue->end) {
    queue->credit -= queue->flops_per_row;
    const float* row = queue->rows[queue->next++];
    // Into the second-level cache: the first belongs to the product.
    for (int64_t j = 0; j < queue->row_floats; j += 16) __builtin_prefetch(row + j, 0, 2);
    __builtin_prefetch(row + queue->row_floats - 1, 0, 2);
  }
}

// Scattered rows that will be added to are asked for one step ahead.
HWY_INLINE void PrefetchRows(const BlockProduct& p, const Part& part, int64_t first_row,
                             int64_t count, int64_t columns) {
  const int64_t end = first_row + count < p.m ? first_row + count : p.m;
  for (int64_t i = first_row; i < end; ++i) {
    const float* row = p.scattered.rows[i] + part.first_column;
    for (int64_t j = 0; j < columns; j += 16) __builtin_prefetch(row + j, 1, 3);
  }
}

// All rows of C by one panel of columns.
template <int kRows, int kFull, int kTail>
HWY_INLINE void Panel(const BlockProduct& p, const Part& part, int64_t first_row) {
  constexpr int64_t kColumns = kFull * kLanes + kTail;
  int64_t i = first_row;
  for (; i + kRows <= p.m; i += kRows) {
    if (p.scattered.rows != nullptr) PrefetchRows(p, part, i + kRows, kRows, kColumns);
    Micro<kRows, kFull, kTail>(p, part, i);
    if (p.prefetch != nullptr) {
      Prefetch(p.prefetch, static_cast<double>(2 * kRows * kColumns * part.k));
    }
  }
  if constexpr (kRows > 1) {
    if (i < p.m) Panel<FewerRows(kRows), kFull, kTail>(p, part, i);
  }
}

template <int kFull, int kTail>
HWY_INLINE void PanelOf(const BlockProduct& p, const Part& part) {
  constexpr int kVectors = kFull + (kTail > 0 ? 1 : 0);
  Panel<RowsFor(kVectors), kFull, kTail>(p, part, 0);
}

// A panel of `full` vectors and a tail.
template <int kTail>
void AnyPanel(const BlockProduct& p, const Part& part, int64_t full) {
  switch (full) {
    case 0:
      if constexpr (kTail > 0) PanelOf<0, kTail>(p, part);
      return;
    case 1:
      return PanelOf<1, kTail>(p, part);
    case 2:
      if constexpr (kMaxVectors >= 3 || kTail == 0) PanelOf<2, kTail>(p, part);
      return;
    case 3:
      if constexpr (kMaxVectors >= 4) PanelOf<3, kTail>(p, part);
      return;
    default:
      if constexpr (kMaxVectors >= 4 && kTail == 0) PanelOf<4, 0>(p, part);
      return;
  }
}

// Rows row, row + 1, ..., row + kRows - 1 of C by kColumns columns, as dot products.
template <int kRows, int kColumns>
HWY_NOINLINE void Dots(const BlockProduct& p, int64_t row, int64_t column) {
  const Floats d;
  const hn::CappedTag<float, 4> few;
  constexpr int64_t kFew = static_cast<int64_t>(hn::MaxLanes(few));
  const float* a = p.a + row * p.a_row;
  const float* b = p.b_columns + column * p.b_columns_stride;
  Vec sum[kRows][kColumns];
  hn::Vec<decltype(few)> tail[kRows][kColumns];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      sum[i][j] = hn::Zero(d);
      tail[i][j] = hn::Zero(few);
    }
  }
  int64_t l = 0;
  for (; l + kLanes <= p.k; l += kLanes) {
    Vec bv[kColumns];
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) bv[j] = hn::LoadU(d, b + j * p.b_columns_stride + l);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec av = hn::LoadU(d, a + i * p.a_row + l);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
  }
  for (; l + kFew <= p.k; l += kFew) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        tail[i][j] = hn::MulAdd(hn::LoadU(few, a + i * p.a_row + l),
                                hn::LoadU(few, b + j * p.b_columns_stride + l), tail[i][j]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float dot = Sum(sum[i][j]) + hn::GetLane(hn::SumOfLanes(few, tail[i][j]));
      for (int64_t r = l; r < p.k; ++r) {
        const hn::CappedTag<float, 1> one;
        dot =
            hn::GetLane(hn::MulAdd(hn::Set(one, a[i * p.a_row + r]),
                                   hn::Set(one, b[j * p.b_columns_stride + r]), hn::Set(one, dot)));
      }
      p.c[(row + i) * p.c_stride + column + j] = dot;
    }
  }
}

template <int kColumns>
void DotColumns(const BlockProduct& p, int64_t column) {
  constexpr int kRows = 4;
  int64_t i = 0;
  for (; i + kRows <= p.m; i += kRows) Dots<kRows, kColumns>(p, i, column);
  for (; i < p.m; ++i) Dots<1, kColumns>(p, i, column);
}

void MultiplyBlocksImpl(BlockProduct p) {
  if (p.b_columns != nullptr && p.n % kLanes <= 2) {
    const int64_t rest = p.n % kLanes;
    if (rest == 1) DotColumns<1>(p, p.n - 1);
    if (rest == 2) DotColumns<2>(p, p.n - 2);
    p.n -= rest;
  }
  // Columns: whole vectors, and what is left in a shorter one if that does.
  int64_t full = p.n / kLanes;
  const int64_t rest = p.n - full * kLanes;
  int tail = 0;
  if (rest > 0 && rest <= 4 && kLanes > 4) {
    tail = 4;
  } else if (rest > 0 && rest <= 8 && kLanes > 8) {
    tail = 8;
  } else if (rest > 0) {
    ++full;
  }
  const int64_t vectors = full + (tail > 0 ? 1 : 0);
  const int64_t num_panels = (vectors + kMaxVectors - 1) / kMaxVectors;
  const int64_t num_runs = (p.k + kMaxRun - 1) / kMaxRun;

  // From the last run to the first: what B's rows were written last is in the nearest cache.
  for (int64_t run = num_runs - 1; run >= 0; --run) {
    const int64_t first_k = p.k * run / num_runs;
    for (int64_t panel = 0; panel < num_panels; ++panel) {
      // Panels of about equal size, the larger ones first.
      const int64_t first = vectors - vectors * (num_panels - panel) / num_panels;
      const int64_t size = vectors - vectors * (num_panels - panel - 1) / num_panels - first;
      const Part part{.a = p.a + first_k * p.a_col,
                      .b = p.b + first_k * p.b_stride + first * kLanes,
                      .first_column = first * kLanes,
                      .k = p.k * (run + 1) / num_runs - first_k,
                      .first = run == num_runs - 1,
                      .last = run == 0};
      if (panel < num_panels - 1 || tail == 0) {
        AnyPanel<0>(p, part, size);
      } else if (tail == 4) {
        AnyPanel<(kLanes > 4 ? 4 : 0)>(p, part, size - 1);
      } else {
        AnyPanel<(kLanes > 8 ? 8 : 0)>(p, part, size - 1);
      }
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// The 4 x 4 block at `from`, transposed.
HWY_INLINE void Transpose4(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  const hn::CappedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from);
  const auto r1 = hn::LoadU(d, from + from_stride);
  const auto r2 = hn::LoadU(d, from + 2 * from_stride);
  const auto r3 = hn::LoadU(d, from + 3 * from_stride);
  const auto even_low = hn::InterleaveLower(d, r0, r2);
  const auto even_high = hn::InterleaveUpper(d, r0, r2);
  const auto odd_low = hn::InterleaveLower(d, r1, r3);
  const auto odd_high = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, even_low, odd_low), d, to);
  hn::StoreU(hn::InterleaveUpper(d, even_low, odd_low), d, to + to_stride);
  hn::StoreU(hn::InterleaveLower(d, even_high, odd_high), d, to + 2 * to_stride);
  hn::StoreU(hn::InterleaveUpper(d, even_high, odd_high), d, to + 3 * to_stride);
}
#endif

void TransposeRowsImpl(const RowBlock& x, float* out, int64_t out_stride) {
#if HWY_TARGET != HWY_SCALAR
  for (int64_t j = 0; j < x.dim; j += 4) {
    for (int64_t i = 0; i < x.rows; i += 4) {
      Transpose4(x.row(i) + j, x.stride, out + j * out_stride + i, out_stride);
    }
  }
#else
  for (int64_t j = 0; j < x.dim; ++j) {
    for (int64_t i = 0; i < x.rows; ++i) out[j * out_stride + i] = x.row(i)[j];
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(MultiplyBlocksImpl);
HWY_EXPORT(TransposeRowsImpl);

void MultiplyBlocks(const BlockProduct& p) {
  if (p.k == 0 && !p.accumulate && p.c != nullptr) {
    for (int64_t i = 0; i < p.m; ++i) {
      std::memset(p.c + i * p.c_stride, 0, static_cast<size_t>(p.n) * sizeof(float));
    }
  }
  HWY_DYNAMIC_DISPATCH(MultiplyBlocksImpl)(p);
}

void TransposeRows(const RowBlock& x, float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeRowsImpl)(x, out, out_stride);
}

}  // namespace weft
#endif  // HWY_ONCE
