#include "services/trainer/kernels/vector_ops.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/vector_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

// Adds f(vector of the row) over a padded row, `skip` coordinates left out.
template <class F>
HWY_INLINE Vec FoldRow(int64_t dim, int64_t skip, const F& f) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  Vec sum = SkipFirst(f(0), skip);
  for (int64_t j = lanes; j < dim; j += lanes) sum = hn::Add(sum, f(j));
  return sum;
}

HWY_INLINE float RowSquaredNorm(const float* x, int64_t dim, int64_t skip) {
  return Sum(FoldRow(dim, skip, [x](int64_t j) HWY_ATTR {
    const Vec v = hn::Load(Floats(), x + j);
    return hn::Mul(v, v);
  }));
}

void SquaredNormsImpl(const RowBlock& x, int64_t skip, float* norms) {
  for (int64_t i = 0; i < x.rows; ++i) norms[i] = RowSquaredNorm(x.row(i), x.dim, skip);
}

// Scales a padded row from coordinate `skip` on.
HWY_INLINE void ScaleRow(float* x, int64_t dim, int64_t skip, float scale) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec s = hn::Set(d, scale);
  const float kept = x[0];
  for (int64_t j = 0; j < dim; j += lanes) hn::Store(hn::Mul(hn::Load(d, x + j), s), d, x + j);
  if (skip == 1) x[0] = kept;
}

void NormalizeRowsImpl(const RowBlock& x, int64_t skip, float* inverse_norms) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < x.rows; ++i) {
    float* row = x.row(i);
    float square = RowSquaredNorm(row, x.dim, skip);
    float scale = 1;
    if (!(square > 1e-30f && square < 1e30f)) [[unlikely]] {
      // Squares may vanish or overflow: scale by the largest coordinate first.
      Vec largest = SkipFirst(hn::Abs(hn::Load(d, row)), skip);
      for (int64_t j = lanes; j < x.dim; j += lanes) {
        largest = hn::Max(largest, hn::Abs(hn::Load(d, row + j)));
      }
      const float top = Largest(largest);
      if (top > 0 && top < HUGE_VALF) {
        scale = std::ldexp(1.0f, std::clamp(-std::ilogb(top), -126, 126));
        ScaleRow(row, x.dim, skip, scale);
        square = RowSquaredNorm(row, x.dim, skip);
      }
    }
    const float inverse = square > 0 ? 1.0f / std::sqrt(square) : square;  // 0 and NaN stay
    ScaleRow(row, x.dim, skip, inverse);
    inverse_norms[i] = std::min(inverse * scale, FLT_MAX);
  }
}

void NormalizeRowsBackwardImpl(const RowBlock& x, int64_t skip, const float* inverse_norms,
                               const RowBlock& g) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* xi = x.row(i);
    float* gi = g.row(i);
    const float dot = Sum(FoldRow(x.dim, skip, [xi, gi](int64_t j) HWY_ATTR {
      return hn::Mul(hn::Load(Floats(), xi + j), hn::Load(Floats(), gi + j));
    }));
    const Vec along = hn::Set(d, dot);
    const Vec inverse = hn::Set(d, inverse_norms[i]);
    const float bias = gi[0];
    for (int64_t j = 0; j < x.dim; j += lanes) {
      const Vec across = hn::NegMulAdd(along, hn::Load(d, xi + j), hn::Load(d, gi + j));
      hn::Store(hn::Mul(across, inverse), d, gi + j);
    }
    if (skip == 1) gi[0] = bias;
  }
}

void RowDotsImpl(const RowBlock& a, const RowBlock& b, int64_t skip, float* out) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const float* ai = a.row(i);
    const float* bi = b.row(i);
    out[i] = Sum(FoldRow(a.dim, skip, [ai, bi](int64_t j) HWY_ATTR {
      return hn::Mul(hn::Load(Floats(), ai + j), hn::Load(Floats(), bi + j));
    }));
  }
}

float SquaredDistanceImpl(const float* a, const float* b, int64_t dim, int64_t skip) {
  return Sum(FoldRow(dim, skip, [a, b](int64_t j) HWY_ATTR {
    const Vec v = hn::Sub(hn::Load(Floats(), a + j), hn::Load(Floats(), b + j));
    return hn::Mul(v, v);
  }));
}

void AddScaledRowImpl(const float* x, float scale, int64_t dim, int64_t skip, float* y) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec s = hn::Set(d, scale);
  const float kept = y[0];
  for (int64_t j = 0; j < dim; j += lanes) {
    hn::Store(hn::MulAdd(s, hn::Load(d, x + j), hn::Load(d, y + j)), d, y + j);
  }
  if (skip == 1) y[0] = kept;
}

void SubtractScaledRowsImpl(const RowBlock& x, const float* scale, int64_t skip,
                            const RowBlock& y) {
  for (int64_t i = 0; i < x.rows; ++i) {
    AddScaledRowImpl(x.row(i), -scale[i], x.dim, skip, y.row(i));
  }
}

void AddScaledDifferenceImpl(const float* a, const float* b, float scale, int64_t dim, int64_t skip,
                             float* y) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec s = hn::Set(d, scale);
  const float kept = y[0];
  for (int64_t j = 0; j < dim; j += lanes) {
    const Vec difference = hn::Sub(hn::Load(d, a + j), hn::Load(d, b + j));
    hn::Store(hn::MulAdd(s, difference, hn::Load(d, y + j)), d, y + j);
  }
  if (skip == 1) y[0] = kept;
}

// The last vector of every row, masked.
void ClearPaddingImpl(const RowBlock& x) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t first = x.dim / lanes * lanes;
  const auto kept = hn::FirstN(d, static_cast<size_t>(x.dim - first));
  for (int64_t i = 0; i < x.rows; ++i) {
    float* row = x.row(i) + first;
    hn::Store(hn::IfThenElseZero(kept, hn::Load(d, row)), d, row);
    for (int64_t j = first + lanes; j < PaddedDim(x.dim); j += lanes) {
      hn::Store(hn::Zero(d), d, x.row(i) + j);
    }
  }
}

void AddRowsImpl(const RowBlock& from, const RowBlock& to) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < from.rows; ++i) {
    const float* x = from.row(i);
    float* y = to.row(i);
    for (int64_t j = 0; j < from.dim; j += lanes) {
      hn::Store(hn::Add(hn::Load(d, x + j), hn::Load(d, y + j)), d, y + j);
    }
  }
}

void AddFloatsImpl(const float* x, int64_t n, float* y) {
  ForEachPart(n, [x, y](auto d, int64_t j) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, x + j), hn::LoadU(d, y + j)), d, y + j);
  });
}

bool AddRowsToImpl(const RowBlock& from, float* const* to, const uint8_t* fresh) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = from.dim / lanes * lanes;
  const auto kept = hn::FirstN(d, static_cast<size_t>(from.dim - whole));
  Vec bad = hn::Zero(d);
  for (int64_t i = 0; i < from.rows; ++i) {
    const float* x = from.row(i);
    float* y = to[i];
    const bool add = fresh[i] == 0;
    for (int64_t j = 0; j < whole; j += lanes) {
      Vec v = hn::Load(d, x + j);
      if (add) v = hn::Add(v, hn::Load(d, y + j));
      bad = hn::Add(bad, NotFinite(v));
      hn::Store(v, d, y + j);
    }
    if (whole < from.dim) {
      Vec v = hn::IfThenElseZero(kept, hn::Load(d, x + whole));
      if (add) v = hn::Add(v, hn::IfThenElseZero(kept, hn::Load(d, y + whole)));
      bad = hn::Add(bad, NotFinite(v));
      hn::Store(v, d, y + whole);
    }
  }
  return Sum(bad) == 0;
}

double AddCubedNormImpl(const RowBlock& x, bool complex, float coef, const RowBlock& g) {
  const Floats full;
  double total = 0;
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* xi = x.row(i);
    float* gi = g.row(i);
    Vec sum = hn::Zero(full);
    float tail = 0;
    auto accumulate = [&](auto d, auto cube) HWY_ATTR {
      if constexpr (std::is_same_v<decltype(d), Floats>) {
        sum = hn::Add(sum, cube);
      } else {
        tail += hn::GetLane(hn::SumOfLanes(d, cube));
      }
    };
    if (complex) {
      const int64_t half = x.dim / 2;
      ForEachPart(half, [&](auto d, int64_t j) HWY_ATTR {
        const auto re = hn::LoadU(d, xi + j);
        const auto im = hn::LoadU(d, xi + half + j);
        const auto square = hn::MulAdd(re, re, hn::Mul(im, im));
        const auto modulus = hn::Sqrt(square);
        accumulate(d, hn::Mul(square, modulus));
        if (coef == 0) return;
        const auto factor = hn::Mul(hn::Set(d, 3 * coef), modulus);
        hn::StoreU(hn::MulAdd(factor, re, hn::LoadU(d, gi + j)), d, gi + j);
        hn::StoreU(hn::MulAdd(factor, im, hn::LoadU(d, gi + half + j)), d, gi + half + j);
      });
    } else {
      ForEachPart(x.dim, [&](auto d, int64_t j) HWY_ATTR {
        const auto v = hn::LoadU(d, xi + j);
        const auto modulus = hn::Abs(v);
        accumulate(d, hn::Mul(hn::Mul(v, v), modulus));
        if (coef == 0) return;
        const auto factor = hn::Mul(hn::Set(d, 3 * coef), modulus);
        hn::StoreU(hn::MulAdd(factor, v, hn::LoadU(d, gi + j)), d, gi + j);
      });
    }
    total += static_cast<double>(Sum(sum)) + static_cast<double>(tail);
  }
  return total;
}

bool AllFiniteImpl(const float* x, int64_t n) {
  const Floats full;
  Vec bad = hn::Zero(full);
  float tail = 0;
  ForEachPart(n, [&](auto d, int64_t j) HWY_ATTR {
    const auto v = hn::LoadU(d, x + j);
    if constexpr (std::is_same_v<decltype(d), Floats>) {
      bad = hn::Add(bad, hn::Sub(v, v));
    } else {
      tail += hn::GetLane(hn::SumOfLanes(d, hn::Sub(v, v)));
    }
  });
  return Sum(bad) == 0 && tail == 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(SquaredNormsImpl);
HWY_EXPORT(NormalizeRowsImpl);
HWY_EXPORT(NormalizeRowsBackwardImpl);
HWY_EXPORT(RowDotsImpl);
HWY_EXPORT(SquaredDistanceImpl);
HWY_EXPORT(AddScaledRowImpl);
HWY_EXPORT(SubtractScaledRowsImpl);
HWY_EXPORT(AddScaledDifferenceImpl);
HWY_EXPORT(ClearPaddingImpl);
HWY_EXPORT(AddRowsImpl);
HWY_EXPORT(AddFloatsImpl);
HWY_EXPORT(AddRowsToImpl);
HWY_EXPORT(AddCubedNormImpl);
HWY_EXPORT(AllFiniteImpl);

void ClearPadding(const RowBlock& rows) {
  if (rows.dim % kVectorFloats != 0) HWY_DYNAMIC_DISPATCH(ClearPaddingImpl)(rows);
}

void ZeroRows(const RowBlock& rows) {
  const auto bytes = static_cast<size_t>(PaddedDim(rows.dim)) * sizeof(float);
  for (int64_t i = 0; i < rows.rows; ++i) std::memset(rows.row(i), 0, bytes);
}

void CopyRows(const RowBlock& from, const RowBlock& to) {
  const auto bytes = static_cast<size_t>(PaddedDim(from.dim)) * sizeof(float);
  for (int64_t i = 0; i < from.rows; ++i) std::memcpy(to.row(i), from.row(i), bytes);
}

void AddRows(const RowBlock& from, const RowBlock& to) {
  HWY_DYNAMIC_DISPATCH(AddRowsImpl)(from, to);
}

void SquaredNorms(const RowBlock& x, int64_t skip, float* norms) {
  HWY_DYNAMIC_DISPATCH(SquaredNormsImpl)(x, skip, norms);
}

void NormalizeRows(const RowBlock& x, int64_t skip, float* inverse_norms) {
  HWY_DYNAMIC_DISPATCH(NormalizeRowsImpl)(x, skip, inverse_norms);
}

void NormalizeRowsBackward(const RowBlock& x, int64_t skip, const float* inverse_norms,
                           const RowBlock& g) {
  HWY_DYNAMIC_DISPATCH(NormalizeRowsBackwardImpl)(x, skip, inverse_norms, g);
}

void RowDots(const RowBlock& a, const RowBlock& b, int64_t skip, float* out) {
  HWY_DYNAMIC_DISPATCH(RowDotsImpl)(a, b, skip, out);
}

float SquaredDistance(const float* a, const float* b, int64_t dim, int64_t skip) {
  return HWY_DYNAMIC_DISPATCH(SquaredDistanceImpl)(a, b, dim, skip);
}

void RowSquaredDistances(const RowBlock& a, const RowBlock& b, int64_t skip, float* out) {
  for (int64_t i = 0; i < a.rows; ++i) out[i] = SquaredDistance(a.row(i), b.row(i), a.dim, skip);
}

void SubtractScaledRows(const RowBlock& x, const float* scale, int64_t skip, const RowBlock& y) {
  HWY_DYNAMIC_DISPATCH(SubtractScaledRowsImpl)(x, scale, skip, y);
}

void AddScaledDifference(const float* a, const float* b, float scale, int64_t dim, int64_t skip,
                         float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaledDifferenceImpl)(a, b, scale, dim, skip, y);
}

void AddScaledRow(const float* x, float scale, int64_t dim, int64_t skip, float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaledRowImpl)(x, scale, dim, skip, y);
}

void AddFloats(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(AddFloatsImpl)(x, n, y);
}

bool AddRowsTo(const RowBlock& from, float* const* to, const uint8_t* fresh) {
  return HWY_DYNAMIC_DISPATCH(AddRowsToImpl)(from, to, fresh);
}

double AddCubedNorm(const RowBlock& x, bool complex, float coef, const RowBlock& g) {
  return HWY_DYNAMIC_DISPATCH(AddCubedNormImpl)(x, complex, coef, g);
}

bool AllFinite(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(AllFiniteImpl)(x, n); }

}  // namespace weft
#endif  // HWY_ONCE
