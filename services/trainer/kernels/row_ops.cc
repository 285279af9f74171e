#include "services/trainer/kernels/row_ops.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "services/common/changed_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/row_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

constexpr int64_t kLineFloats = 16;  // of a cache line
// Rows ahead of the one in work: enough to cover a memory access, few enough to stay in the
// first-level cache.
constexpr int64_t kAhead = 8;

HWY_INLINE void PrefetchRow(const float* row, int64_t dim) {
  for (int64_t j = 0; j < dim; j += kLineFloats) hwy::Prefetch(row + j);
  hwy::Prefetch(row + dim - 1);
}

HWY_INLINE void CopyRow(const float* from, int64_t dim, const float* addend, float* to) {
  ForEachPart(dim, [&](auto d, int64_t j) HWY_ATTR {
    auto v = hn::LoadU(d, from + j);
    if (addend != nullptr) v = hn::Add(v, hn::LoadU(d, addend + j));
    hn::StoreU(v, d, to + j);
  });
  for (int64_t j = dim; j < PaddedDim(dim); ++j) to[j] = 0;
}

void GatherRowsImpl(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                    const float* addend, const RowBlock& out) {
  const int64_t dim = table.dimension;
  const int64_t n = static_cast<int64_t>(offsets.size());
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) PrefetchRow(table.embeddings + offsets[i + kAhead] * dim, dim);
    CopyRow(table.embeddings + offsets[i] * dim, dim, addend, out.row(i));
  }
}

void GatherRangeImpl(const EmbeddingTable& table, int64_t first, const float* addend,
                     const RowBlock& out) {
  const int64_t dim = table.dimension;
  for (int64_t i = 0; i < out.rows; ++i) {
    CopyRow(table.embeddings + (first + i) * dim, dim, addend, out.row(i));
  }
}

void MeanRowsImpl(const EmbeddingTable& table, const FeatureBags& bags,
                  std::span<const EntityOffset> which, float* out) {
  const int64_t dim = table.dimension;
  for (const EntityOffset id : which) {
    const std::span<const EntityOffset> bag = bags[id];
    const auto n = static_cast<int64_t>(bag.size());
    std::fill_n(out, dim, 0.0f);
    const float share = n == 0 ? 0 : 1.0f / static_cast<float>(n);
    for (int64_t i = 0; i < n; ++i) {
      if (i + kAhead < n) PrefetchRow(table.embeddings + bag[i + kAhead] * dim, dim);
      const float* row = table.embeddings + bag[i] * dim;
      ForEachPart(dim, [&](auto d, int64_t j) HWY_ATTR {
        const auto sum = hn::LoadU(d, out + j);
        hn::StoreU(hn::MulAdd(hn::Set(d, share), hn::LoadU(d, row + j), sum), d, out + j);
      });
    }
    out += dim;
  }
}

void PrefetchRowsImpl(const EmbeddingTable& table, std::span<const EntityOffset> offsets) {
  for (const EntityOffset offset : offsets) {
    PrefetchRow(table.embeddings + offset * table.dimension, table.dimension);
  }
}

HWY_INLINE float SquaredNorm(const float* row, int64_t dim) {
  Vec sum = hn::Zero(Floats());
  float rest = 0;
  ForEachPart(dim, [&](auto d, int64_t j) HWY_ATTR {
    const auto v = hn::LoadU(d, row + j);
    if constexpr (std::is_same_v<decltype(d), Floats>) {
      sum = hn::MulAdd(v, v, sum);
    } else {
      rest += hn::GetLane(hn::SumOfLanes(d, hn::Mul(v, v)));
    }
  });
  return Sum(sum) + rest;
}

void LimitRowNormsImpl(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                       float max_norm) {
  for (const EntityOffset offset : offsets) {
    float* row = table.embeddings + offset * table.dimension;
    const float norm = std::sqrt(SquaredNorm(row, table.dimension));
    if (!(norm > max_norm) || std::isinf(norm)) continue;
    const float factor = max_norm / (norm + 1e-7f);
    ForEachPart(table.dimension, [&](auto d, int64_t j) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + j), hn::Set(d, factor)), d, row + j);
    });
    if (table.changed != nullptr) MarkChanged(table.changed, offset);
  }
}

void AdagradRowsImpl(const EmbeddingTable& table, std::span<const RowStep> steps,
                     const RowBlock& grads, float lr) {
  const int64_t dim = table.dimension;
  const float mean = 1.0f / static_cast<float>(dim);
  const int64_t n = static_cast<int64_t>(steps.size());
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) {
      const int64_t next = steps[i + kAhead].offset;
      hwy::Prefetch(table.adagrad_sums + next);
      PrefetchRow(table.embeddings + next * dim, dim);
      PrefetchRow(grads.row(steps[i + kAhead].slot), dim);
    }
    const RowStep step = steps[i];
    const float* g = grads.row(step.slot);
    float& total = table.adagrad_sums[step.offset];
    // Squares may overflow where gradients do not: such a row stands still.
    const float sum = std::min(total + SquaredNorm(g, dim) * mean, FLT_MAX);
    total = sum;
    const float rate = -lr / (std::sqrt(sum) + 1e-10f);
    float* row = table.embeddings + step.offset * dim;
    ForEachPart(dim, [&](auto d, int64_t j) HWY_ATTR {
      const auto old = hn::LoadU(d, row + j);
      hn::StoreU(hn::MulAdd(hn::Set(d, rate), hn::LoadU(d, g + j), old), d, row + j);
    });
  }
}

void ReadParameterImpl(const float* from, int64_t n, float* to) {
  ForEachPart(n,
              [&](auto d, int64_t j) HWY_ATTR { hn::StoreU(hn::LoadU(d, from + j), d, to + j); });
}

void AdagradElementsImpl(float* values, float* sums, const float* grads, int64_t n, float lr) {
  ForEachPart(n, [&](auto d, int64_t j) HWY_ATTR {
    const auto g = hn::LoadU(d, grads + j);
    const auto sum = hn::MulAdd(g, g, hn::LoadU(d, sums + j));
    hn::StoreU(sum, d, sums + j);
    const auto step =
        hn::Div(hn::Mul(hn::Set(d, lr), g), hn::Add(hn::Sqrt(sum), hn::Set(d, 1e-10f)));
    hn::StoreU(hn::Sub(hn::LoadU(d, values + j), step), d, values + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(GatherRowsImpl);
HWY_EXPORT(GatherRangeImpl);
HWY_EXPORT(MeanRowsImpl);
HWY_EXPORT(PrefetchRowsImpl);
HWY_EXPORT(LimitRowNormsImpl);
HWY_EXPORT(AdagradRowsImpl);
HWY_EXPORT(ReadParameterImpl);
HWY_EXPORT(AdagradElementsImpl);

void GatherRows(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                const float* addend, const RowBlock& out) {
  HWY_DYNAMIC_DISPATCH(GatherRowsImpl)(table, offsets, addend, out);
}

void GatherRange(const EmbeddingTable& table, int64_t first, const float* addend,
                 const RowBlock& out) {
  HWY_DYNAMIC_DISPATCH(GatherRangeImpl)(table, first, addend, out);
}

void MeanRows(const EmbeddingTable& table, const FeatureBags& bags,
              std::span<const EntityOffset> which, float* out) {
  HWY_DYNAMIC_DISPATCH(MeanRowsImpl)(table, bags, which, out);
}

void PrefetchRows(const EmbeddingTable& table, std::span<const EntityOffset> offsets) {
  HWY_DYNAMIC_DISPATCH(PrefetchRowsImpl)(table, offsets);
}

void RowAddresses(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                  const float** addresses) {
  for (const EntityOffset offset : offsets) {
    *addresses++ = table.embeddings + offset * table.dimension;
  }
}

void LimitRowNorms(const EmbeddingTable& table, std::span<const EntityOffset> offsets,
                   float max_norm) {
  HWY_DYNAMIC_DISPATCH(LimitRowNormsImpl)(table, offsets, max_norm);
}

void AdagradRows(const EmbeddingTable& table, std::span<const RowStep> steps, const RowBlock& grads,
                 float lr) {
  HWY_DYNAMIC_DISPATCH(AdagradRowsImpl)(table, steps, grads, lr);
  if (table.changed == nullptr) return;  // as all partitioned ones
  for (const RowStep& step : steps) MarkChanged(table.changed, step.offset);
}

void ReadParameter(const float* from, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(ReadParameterImpl)(from, n, to);
}

void AdagradElements(float* values, float* sums, const float* grads, int64_t n, float lr) {
  HWY_DYNAMIC_DISPATCH(AdagradElementsImpl)(values, sums, grads, n, lr);
}

}  // namespace weft
#endif  // HWY_ONCE
