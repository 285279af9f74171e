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
  if (HWY_TARGET <= HWY_AVX3) return vectors == 4 ? 6 : 8;
  return vectors == 2 ? 6 : 8;
}
// The next smaller kernel, for what is left of the rows.
constexpr int FewerRows(int rows) { return rows > 4 ? 4 : rows > 2 ? 2 : 1; }

constexpr int64_t kMaxRun = 128;  // of k; keeps a panel of B in the first-level cache

// A run of k of a product, and a panel of its columns.
struct Part {
  int64_t first_k = 0;
  int64_t k = 0;
  int64_t first_column = 0;
  bool first = false;  // run of k
  bool last = false;
};

// How many steps of k a kernel makes between asking for lines.
constexpr int64_t kStepsBetween = 8;

// What is asked for while a kernel runs.
struct Ahead {
  PrefetchQueue* queues[2] = {nullptr, nullptr};  // the first goes first
  PrefetchQueue* now = nullptr;
  double lines = 0;  // each time

  // Before a kernel that makes `flops` operations from one time to the next.
  HWY_INLINE void Begin(double flops) {
    now = nullptr;
    for (PrefetchQueue* queue : queues) {
      if (queue == nullptr || queue->next == queue->end) continue;
      now = queue;
      lines = flops * queue->lines_per_flop;
      return;
    }
  }

  HWY_INLINE void Ask() {
    if (now == nullptr) return;
    PrefetchQueue* q = now;
    q->credit += lines;
    for (; q->credit >= 1 && q->next < q->end; q->credit -= 1) {
      // Into the second-level cache: the first belongs to the product.
      const float* row = q->rows[q->next];
      if (q->position < q->row_floats) {
        __builtin_prefetch(row + q->position, 0, 2);
        q->position += 16;
      } else {
        __builtin_prefetch(row + q->row_floats - 1, 0, 2);
        q->position = 0;
        ++q->next;
      }
    }
  }
};

// Rows i, i + 1, ..., i + kRows - 1 of C by kFull whole vectors and, if kTail > 0, one of kTail
// lanes.
template <int kRows, int kFull, int kTail>
HWY_NOINLINE void Micro(const BlockProduct& p, const Part& part, int64_t first_row, Ahead* ahead) {
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
  const float* a[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const float* row =
        p.a_places != nullptr ? p.a_places[first_row + i] : p.a + (first_row + i) * p.a_row;
    a[i] = row + part.first_k * p.a_col;
  }
  const int64_t a_col = p.a_col;
  int64_t at = 0;  // in rows of A
  const float* const* places = p.b_places == nullptr ? nullptr : p.b_places + part.first_k;
  const int64_t b_stride = places != nullptr ? 0 : p.b_stride;
  const float* b = places != nullptr ? nullptr : p.b + part.first_k * b_stride + part.first_column;
  for (int64_t left = part.k; left > 0; left -= kStepsBetween) {
    ahead->Ask();
    for (int64_t l = left < kStepsBetween ? left : kStepsBetween; l > 0; --l) {
      Vec bv[kSpace];
      Tail bt = hn::Zero(dt);
      if (places != nullptr) b = *places++ + part.first_column;
#pragma GCC unroll 16
      for (int j = 0; j < kFull; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
      if constexpr (kTail > 0) bt = hn::LoadU(dt, b + kFull * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const Vec av = hn::Set(d, a[i][at]);
#pragma GCC unroll 16
        for (int j = 0; j < kFull; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
        if constexpr (kTail > 0) tail[i] = hn::MulAdd(hn::Set(dt, a[i][at]), bt, tail[i]);
      }
      at += a_col;
      b += b_stride;
    }
  }
  // The sum over this run is added as a whole to what was there. Whether a scattered row is fresh
  // cannot be foreseen: a mask, not a branch.
  if (scattered || p.accumulate || !part.first) {
    static constexpr uint8_t kNoneFresh[kRows] = {};
    const uint8_t* fresh = scattered && part.first ? p.scattered.fresh + first_row : kNoneFresh;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const bool keep = fresh[i] == 0;
      const auto mask = hn::FirstN(d, keep ? kLanes : 0);
#pragma GCC unroll 16
      for (int j = 0; j < kFull; ++j) {
        sum[i][j] = hn::Add(sum[i][j], hn::IfThenElseZero(mask, hn::LoadU(d, c[i] + j * kLanes)));
      }
      if constexpr (kTail > 0) {
        const auto tail_mask = hn::FirstN(dt, keep ? kTail : 0);
        tail[i] =
            hn::Add(tail[i], hn::IfThenElseZero(tail_mask, hn::LoadU(dt, c[i] + kFull * kLanes)));
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) hn::StoreU(sum[i][j], d, c[i] + j * kLanes);
    if constexpr (kTail > 0) hn::StoreU(tail[i], dt, c[i] + kFull * kLanes);
  }
  if (!scattered || !part.last) return;
  Vec bad[kSpace];
  Tail bad_tail = hn::Zero(dt);
#pragma GCC unroll 16
  for (int j = 0; j < kSpace; ++j) bad[j] = hn::Zero(d);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kFull; ++j) bad[j] = hn::Add(bad[j], NotFinite(sum[i][j]));
    if constexpr (kTail > 0) bad_tail = hn::Add(bad_tail, hn::Sub(tail[i], tail[i]));
  }
#pragma GCC unroll 16
  for (int j = 1; j < kSpace; ++j) bad[0] = hn::Add(bad[0], bad[j]);
  const bool finite = hn::AllTrue(d, hn::Eq(bad[0], hn::Zero(d))) &&
                      (kTail == 0 || hn::AllTrue(dt, hn::Eq(bad_tail, hn::Zero(dt))));
  if (!finite) *p.scattered.finite = false;
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
HWY_INLINE void Panel(const BlockProduct& p, const Part& part, int64_t first_row, Ahead* ahead) {
  constexpr int64_t kColumns = kFull * kLanes + kTail;
  int64_t i = first_row;
  for (; i + kRows <= p.m; i += kRows) {
    if (p.scattered.rows != nullptr) PrefetchRows(p, part, i + kRows, kRows, kColumns);
    ahead->Begin(static_cast<double>(2 * kRows * kColumns * kStepsBetween));
    Micro<kRows, kFull, kTail>(p, part, i, ahead);
  }
  if constexpr (kRows > 1) {
    if (i < p.m) Panel<FewerRows(kRows), kFull, kTail>(p, part, i, ahead);
  }
}

template <int kFull, int kTail>
HWY_INLINE void PanelOf(const BlockProduct& p, const Part& part, Ahead* ahead) {
  constexpr int kVectors = kFull + (kTail > 0 ? 1 : 0);
  Panel<RowsFor(kVectors), kFull, kTail>(p, part, 0, ahead);
}

// A panel of `full` vectors and a tail.
template <int kTail>
void AnyPanel(const BlockProduct& p, const Part& part, int64_t full, Ahead* ahead) {
  switch (full) {
    case 0:
      if constexpr (kTail > 0) PanelOf<0, kTail>(p, part, ahead);
      return;
    case 1:
      return PanelOf<1, kTail>(p, part, ahead);
    case 2:
      if constexpr (kMaxVectors >= 3 || kTail == 0) PanelOf<2, kTail>(p, part, ahead);
      return;
    case 3:
      if constexpr (kMaxVectors >= 4) PanelOf<3, kTail>(p, part, ahead);
      return;
    default:
      if constexpr (kMaxVectors >= 4 && kTail == 0) PanelOf<4, 0>(p, part, ahead);
      return;
  }
}

// Rows row, row + 1, ..., row + kRows - 1 of C by kColumns columns, as dot products.
template <int kRows, int kColumns>
HWY_NOINLINE void Dots(const BlockProduct& p, int64_t row, int64_t column) {
  const Floats d;
  const hn::CappedTag<float, 4> few;
  constexpr int64_t kFew = static_cast<int64_t>(hn::MaxLanes(few));
  const float* a[kRows];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    a[i] = p.a_places != nullptr ? p.a_places[row + i] : p.a + (row + i) * p.a_row;
  }
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
      const Vec av = hn::LoadU(d, a[i] + l);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
  }
  for (; l + kFew <= p.k; l += kFew) {
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kColumns; ++j) {
        tail[i][j] = hn::MulAdd(hn::LoadU(few, a[i] + l),
                                hn::LoadU(few, b + j * p.b_columns_stride + l), tail[i][j]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      float dot = Sum(sum[i][j]) + hn::GetLane(hn::SumOfLanes(few, tail[i][j]));
      for (int64_t r = l; r < p.k; ++r) {
        const hn::CappedTag<float, 1> one;
        dot = hn::GetLane(hn::MulAdd(
            hn::Set(one, a[i][r]), hn::Set(one, b[j * p.b_columns_stride + r]), hn::Set(one, dot)));
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

void MultiplyPanels(const BlockProduct& p, Ahead* ahead);

// Rows of a scattered result that are computed together; the next ones are asked for meanwhile.
// What belongs to a panel of them - of A, of B and of C - has room in the first-level cache.
constexpr int64_t kScatteredRows = 48;

void MultiplyBlocksImpl(BlockProduct p) {
  if (p.b_columns != nullptr && p.n % kLanes <= 2) {
    const int64_t rest = p.n % kLanes;
    if (rest == 1) DotColumns<1>(p, p.n - 1);
    if (rest == 2) DotColumns<2>(p, p.n - 2);
    p.n -= rest;
  }
  Ahead ahead;
  ahead.queues[1] = p.prefetch;
  if (p.scattered.rows == nullptr || p.m <= 2 * kScatteredRows) return MultiplyPanels(p, &ahead);
  PrefetchQueue targets{.rows = p.scattered.rows, .row_floats = p.n};
  ahead.queues[0] = &targets;
  const int64_t m = p.m;
  for (int64_t i = 0; i < m; i += p.m) {
    p.m = std::min(kScatteredRows, m - i);
    // In half of the time: the rest is for the other queue.
    const double flops = static_cast<double>(p.m * p.n * p.k);
    targets.rows = p.scattered.rows + p.m;
    targets.Begin(0, std::min(kScatteredRows, m - i - p.m), flops);
    MultiplyPanels(p, &ahead);
    if (p.a_places != nullptr) {
      p.a_places += p.m;
    } else {
      p.a += p.m * p.a_row;
    }
    p.scattered.rows += p.m;
    p.scattered.fresh += p.m;
  }
}

void MultiplyPanels(const BlockProduct& p, Ahead* ahead) {
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
      const Part part{.first_k = first_k,
                      .k = p.k * (run + 1) / num_runs - first_k,
                      .first_column = first * kLanes,
                      .first = run == num_runs - 1,
                      .last = run == 0};
      if (panel < num_panels - 1 || tail == 0) {
        AnyPanel<0>(p, part, size, ahead);
      } else if (tail == 4) {
        AnyPanel<(kLanes > 4 ? 4 : 0)>(p, part, size - 1, ahead);
      } else {
        AnyPanel<(kLanes > 8 ? 8 : 0)>(p, part, size - 1, ahead);
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
