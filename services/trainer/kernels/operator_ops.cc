#include "services/trainer/kernels/operator_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/operator_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

// Calls f(x_i, params_i, out_i, j) for every vector of every padded row.
template <class F>
HWY_INLINE void ForEachVector(const RowBlock& x, const OperatorRows& op, const RowBlock& out,
                              const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t j = 0; j < x.dim; j += lanes) f(x.row(i) + j, op.row(i) + j, out.row(i) + j);
  }
}

void TranslateImpl(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  const Floats d;
  ForEachVector(x, op, out, [d](const float* v, const float* p, float* to) HWY_ATTR {
    hn::Store(hn::Add(hn::Load(d, v), hn::Load(d, p)), d, to);
  });
}

void MultiplyDiagonalImpl(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  const Floats d;
  ForEachVector(x, op, out, [d](const float* v, const float* p, float* to) HWY_ATTR {
    hn::Store(hn::Mul(hn::Load(d, v), hn::Load(d, p)), d, to);
  });
}

void TranslateBackwardImpl(const RowBlock& g, const OperatorRows& op_grads) {
  const Floats d;
  ForEachVector(g, op_grads, g, [d](const float* grad, float* sum, float*) HWY_ATTR {
    hn::Store(hn::Add(hn::Load(d, sum), hn::Load(d, grad)), d, sum);
  });
}

void MultiplyDiagonalBackwardImpl(const RowBlock& x, const OperatorRows& op,
                                  const OperatorRows& op_grads, const RowBlock& g) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* xi = x.row(i);
    const float* p = op.row(i);
    float* sum = op_grads.row(i);
    float* gi = g.row(i);
    for (int64_t j = 0; j < x.dim; j += lanes) {
      const Vec grad = hn::Load(d, gi + j);
      hn::Store(hn::MulAdd(grad, hn::Load(d, xi + j), hn::Load(d, sum + j)), d, sum + j);
      hn::Store(hn::Mul(grad, hn::Load(d, p + j)), d, gi + j);
    }
  }
}

void MultiplyComplexImpl(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  const int64_t half = x.dim / 2;
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* xi = x.row(i);
    const float* p = op.row(i);
    float* to = out.row(i);
    ForEachPart(half, [&](auto d, int64_t j) HWY_ATTR {
      const auto xr = hn::LoadU(d, xi + j);
      const auto xm = hn::LoadU(d, xi + half + j);
      const auto pr = hn::LoadU(d, p + j);
      const auto pm = hn::LoadU(d, p + half + j);
      hn::StoreU(hn::NegMulAdd(xm, pm, hn::Mul(xr, pr)), d, to + j);
      hn::StoreU(hn::MulAdd(xr, pm, hn::Mul(xm, pr)), d, to + half + j);
    });
    for (int64_t j = x.dim; j < PaddedDim(x.dim); ++j) to[j] = 0;
  }
}

void MultiplyComplexBackwardImpl(const RowBlock& x, const OperatorRows& op,
                                 const OperatorRows& op_grads, const RowBlock& g) {
  const int64_t half = x.dim / 2;
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* xi = x.row(i);
    const float* p = op.row(i);
    float* sum = op_grads.row(i);
    float* gi = g.row(i);
    ForEachPart(half, [&](auto d, int64_t j) HWY_ATTR {
      const auto xr = hn::LoadU(d, xi + j);
      const auto xm = hn::LoadU(d, xi + half + j);
      const auto pr = hn::LoadU(d, p + j);
      const auto pm = hn::LoadU(d, p + half + j);
      const auto gr = hn::LoadU(d, gi + j);
      const auto gm = hn::LoadU(d, gi + half + j);
      const auto sr = hn::MulAdd(gr, xr, hn::LoadU(d, sum + j));
      const auto sm = hn::NegMulAdd(gr, xm, hn::LoadU(d, sum + half + j));
      hn::StoreU(hn::MulAdd(gm, xm, sr), d, sum + j);
      hn::StoreU(hn::MulAdd(gm, xr, sm), d, sum + half + j);
      hn::StoreU(hn::MulAdd(gm, pm, hn::Mul(gr, pr)), d, gi + j);
      hn::StoreU(hn::NegMulAdd(gr, pm, hn::Mul(gm, pr)), d, gi + half + j);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(TranslateImpl);
HWY_EXPORT(MultiplyDiagonalImpl);
HWY_EXPORT(MultiplyComplexImpl);
HWY_EXPORT(TranslateBackwardImpl);
HWY_EXPORT(MultiplyDiagonalBackwardImpl);
HWY_EXPORT(MultiplyComplexBackwardImpl);

void Translate(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  HWY_DYNAMIC_DISPATCH(TranslateImpl)(x, op, out);
}

void MultiplyDiagonal(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  HWY_DYNAMIC_DISPATCH(MultiplyDiagonalImpl)(x, op, out);
}

void MultiplyComplex(const RowBlock& x, const OperatorRows& op, const RowBlock& out) {
  HWY_DYNAMIC_DISPATCH(MultiplyComplexImpl)(x, op, out);
}

void TranslateBackward(const RowBlock& g, const OperatorRows& op_grads) {
  HWY_DYNAMIC_DISPATCH(TranslateBackwardImpl)(g, op_grads);
}

void MultiplyDiagonalBackward(const RowBlock& x, const OperatorRows& op,
                              const OperatorRows& op_grads, const RowBlock& g) {
  HWY_DYNAMIC_DISPATCH(MultiplyDiagonalBackwardImpl)(x, op, op_grads, g);
}

void MultiplyComplexBackward(const RowBlock& x, const OperatorRows& op,
                             const OperatorRows& op_grads, const RowBlock& g) {
  HWY_DYNAMIC_DISPATCH(MultiplyComplexBackwardImpl)(x, op, op_grads, g);
}

}  // namespace weft
#endif  // HWY_ONCE
