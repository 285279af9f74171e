#include "services/trainer/kernels/loss_ops.h"

#include "services/trainer/kernels/row_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/loss_ops.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "services/trainer/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

HWY_INLINE int64_t Lanes() { return static_cast<int64_t>(hn::Lanes(Floats())); }

// Vectors of one value a row are read whole; values beyond the rows are zeroed.
HWY_INLINE Vec LoadRows(const float* p, int64_t i, int64_t n) {
  const Floats d;
  return hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n - i)), hn::LoadU(d, p + i));
}

HWY_INLINE void AddToRows(Vec v, float* p, int64_t i, int64_t n) {
  const Floats d;
  if (i + Lanes() <= n) {
    hn::StoreU(hn::Add(hn::LoadU(d, p + i), v), d, p + i);
    return;
  }
  HWY_ALIGN float lanes[kVectorFloats];
  hn::Store(v, d, lanes);
  for (int64_t r = i; r < n; ++r) p[r] += lanes[r - i];
}

// log(1 + exp(x)), right for all finite x.
HWY_INLINE Vec Softplus(Vec x) {
  const Floats d;
  const Vec small = hn::Exp(d, hn::Neg(hn::Abs(x)));
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, small));
}

// exp(x) / (1 + exp(x)).
HWY_INLINE Vec Sigmoid(Vec x) {
  const Floats d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec small = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const Vec numerator = hn::IfThenElse(hn::Ge(x, hn::Zero(d)), one, small);
  return hn::Div(numerator, hn::Add(one, small));
}

int64_t RankingLossImpl(const LossTile& t, float margin) {
  const Floats d;
  const Vec zero = hn::Zero(d);
  int64_t violators = 0;
  for (int64_t i = 0; i < t.scores.rows; ++i) {
    const float* s = t.scores.row(i);
    float* g = t.grads.row(i);
    const Vec pos = hn::Set(d, t.pos[i]);
    const Vec base = hn::Set(d, margin - t.pos[i]);
    const Vec weight = hn::Set(d, t.weight[i]);
    Vec loss = zero;
    Vec grad_sum = zero;
    Vec bad = NotFinite(pos);
    size_t above = 0;
    for (int64_t j = 0; j < t.scores.cols; j += Lanes()) {
      const Vec score = hn::LoadU(d, s + j);
      bad = hn::Add(bad, NotFinite(score));
      above += hn::CountTrue(d, hn::Gt(score, pos));
      const Vec term = hn::Add(base, score);
      const Vec grad = hn::IfThenElseZero(hn::Ge(term, zero), weight);
      loss = hn::Add(loss, hn::Max(term, zero));
      grad_sum = hn::Add(grad_sum, grad);
      hn::StoreU(grad, d, g + j);
    }
    violators += static_cast<int64_t>(above);
    t.row_loss[i] += t.weight[i] * Sum(hn::Add(loss, bad));
    t.pos_grad[i] -= Sum(grad_sum);
  }
  return violators;
}

int64_t LogisticLossImpl(const LossTile& t, float negative_weight) {
  const Floats d;
  int64_t violators = 0;
  for (int64_t i = 0; i < t.scores.rows; ++i) {
    const float* s = t.scores.row(i);
    float* g = t.grads.row(i);
    const Vec pos = hn::Set(d, t.pos[i]);
    const float weight = t.weight[i] * negative_weight;
    const Vec scale = hn::Set(d, weight);
    Vec loss = hn::Zero(d);
    Vec bad = NotFinite(pos);
    size_t above = 0;
    for (int64_t j = 0; j < t.scores.cols; j += Lanes()) {
      const Vec score = hn::LoadU(d, s + j);
      bad = hn::Add(bad, NotFinite(score));
      above += hn::CountTrue(d, hn::Gt(score, pos));
      loss = hn::Add(loss, Softplus(score));
      hn::StoreU(hn::Mul(scale, Sigmoid(score)), d, g + j);
    }
    violators += static_cast<int64_t>(above);
    t.row_loss[i] += weight * Sum(hn::Add(loss, bad));
  }
  return violators;
}

void LogisticPositivesImpl(int64_t n, const float* pos, const float* weight, float* pos_grad,
                           float* row_loss) {
  for (int64_t i = 0; i < n; i += Lanes()) {
    const Vec score = LoadRows(pos, i, n);
    const Vec w = LoadRows(weight, i, n);
    const Vec loss = hn::Add(Softplus(hn::Neg(score)), NotFinite(score));
    AddToRows(hn::Mul(w, loss), row_loss, i, n);
    AddToRows(hn::Neg(hn::Mul(w, Sigmoid(hn::Neg(score)))), pos_grad, i, n);
  }
}

// The largest score of a row; counts violators; NaN in `bad` when something is not finite.
HWY_INLINE float ScanRow(const float* s, int64_t cols, float pos, Vec* bad, int64_t* violators) {
  const Floats d;
  const Vec p = hn::Set(d, pos);
  Vec largest = hn::Set(d, kPadScore);
  Vec not_finite = NotFinite(p);
  size_t above = 0;
  for (int64_t j = 0; j < cols; j += Lanes()) {
    const Vec score = hn::LoadU(d, s + j);
    largest = hn::Max(largest, score);
    not_finite = hn::Add(not_finite, NotFinite(score));
    above += hn::CountTrue(d, hn::Gt(score, p));
  }
  *bad = not_finite;
  *violators += static_cast<int64_t>(above);
  return Largest(largest);
}

// Writes exp(s - shift) and returns its sum.
HWY_INLINE Vec ExpRow(const float* s, int64_t cols, float shift, float* out) {
  const Floats d;
  const Vec m = hn::Set(d, shift);
  Vec sum = hn::Zero(d);
  for (int64_t j = 0; j < cols; j += Lanes()) {
    const Vec e = hn::Exp(d, hn::Sub(hn::LoadU(d, s + j), m));
    sum = hn::Add(sum, e);
    if (out != nullptr) hn::StoreU(e, d, out + j);
  }
  return sum;
}

void SoftmaxFinishImpl(int64_t n, const float* pos, const float* weight, const float* largest,
                       const float* sum, float* log_sum, float* scale, float* pos_grad,
                       float* row_loss) {
  const Floats d;
  for (int64_t i = 0; i < n; i += Lanes()) {
    const auto rows = hn::FirstN(d, static_cast<size_t>(n - i));
    const Vec z = hn::IfThenElse(rows, hn::LoadU(d, sum + i), hn::Set(d, 1.0f));
    const Vec p = LoadRows(pos, i, n);
    const Vec w = LoadRows(weight, i, n);
    // Log(NaN) is a number: what is wrong in z or p is added again.
    const Vec bad = hn::Add(NotFinite(z), NotFinite(p));
    const Vec lse = hn::Add(LoadRows(largest, i, n), hn::Log(d, z));
    const Vec t = hn::Sub(lse, p);
    const Vec grad = hn::Mul(w, hn::Add(Sigmoid(t), bad));
    AddToRows(hn::Mul(w, hn::Add(Softplus(t), bad)), row_loss, i, n);
    AddToRows(hn::Neg(grad), pos_grad, i, n);
    hn::StoreU(lse, d, log_sum + i);
    hn::StoreU(grad, d, scale + i);
  }
}

int64_t SoftmaxLossImpl(const LossTile& t) {
  const Floats d;
  const int64_t n = t.scores.rows;
  float* largest = t.scratch;
  float* sum = t.scratch + PaddedDim(n);
  float* scale = t.scratch + 2 * PaddedDim(n);
  int64_t violators = 0;
  for (int64_t i = 0; i < n; ++i) {
    Vec bad;
    largest[i] = ScanRow(t.scores.row(i), t.scores.cols, t.pos[i], &bad, &violators);
    const Vec e = ExpRow(t.scores.row(i), t.scores.cols, largest[i], t.grads.row(i));
    sum[i] = Sum(hn::Add(e, bad));
  }
  SoftmaxFinishImpl(n, t.pos, t.weight, largest, sum, largest, scale, t.pos_grad, t.row_loss);
  for (int64_t i = 0; i < n; ++i) {
    float* g = t.grads.row(i);
    const Vec factor = hn::Set(d, scale[i] / sum[i]);
    for (int64_t j = 0; j < t.scores.cols; j += Lanes()) {
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, g + j)), d, g + j);
    }
  }
  return violators;
}

int64_t SoftmaxAccumulateImpl(const Tile& scores, const float* pos, float* largest, float* sum) {
  const Floats d;
  int64_t violators = 0;
  for (int64_t i = 0; i < scores.rows; ++i) {
    Vec bad;
    const float top = ScanRow(scores.row(i), scores.cols, pos[i], &bad, &violators);
    const float shift = top > largest[i] ? top : largest[i];
    // Only the difference of two finite scores, at least 0; the first time all of `sum` is 0.
    const Vec rescale = hn::Exp(d, hn::Set(d, largest[i] - shift));
    const Vec e = ExpRow(scores.row(i), scores.cols, shift, nullptr);
    sum[i] = sum[i] * hn::GetLane(rescale) + Sum(hn::Add(e, bad));
    largest[i] = shift;
  }
  return violators;
}

void SoftmaxGradientImpl(const Tile& scores, const float* log_sum, const float* scale,
                         const Tile& grads) {
  const Floats d;
  for (int64_t i = 0; i < scores.rows; ++i) {
    const float* s = scores.row(i);
    float* g = grads.row(i);
    const Vec lse = hn::Set(d, log_sum[i]);
    const Vec factor = hn::Set(d, scale[i]);
    for (int64_t j = 0; j < scores.cols; j += Lanes()) {
      const Vec e = hn::Exp(d, hn::Sub(hn::LoadU(d, s + j), lse));
      hn::StoreU(hn::Mul(factor, e), d, g + j);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft {

HWY_EXPORT(RankingLossImpl);
HWY_EXPORT(LogisticLossImpl);
HWY_EXPORT(LogisticPositivesImpl);
HWY_EXPORT(SoftmaxLossImpl);
HWY_EXPORT(SoftmaxAccumulateImpl);
HWY_EXPORT(SoftmaxFinishImpl);
HWY_EXPORT(SoftmaxGradientImpl);

int64_t RankingLoss(const LossTile& tile, float margin) {
  return HWY_DYNAMIC_DISPATCH(RankingLossImpl)(tile, margin);
}

int64_t SoftmaxLoss(const LossTile& tile) { return HWY_DYNAMIC_DISPATCH(SoftmaxLossImpl)(tile); }

int64_t LogisticLoss(const LossTile& tile, float negative_weight) {
  return HWY_DYNAMIC_DISPATCH(LogisticLossImpl)(tile, negative_weight);
}

void LogisticPositives(int64_t n, const float* pos, const float* weight, float* pos_grad,
                       float* row_loss) {
  HWY_DYNAMIC_DISPATCH(LogisticPositivesImpl)(n, pos, weight, pos_grad, row_loss);
}

int64_t SoftmaxAccumulate(const Tile& scores, const float* pos, float* largest, float* sum) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxAccumulateImpl)(scores, pos, largest, sum);
}

void SoftmaxFinish(int64_t n, const float* pos, const float* weight, const float* largest,
                   const float* sum, float* log_sum, float* scale, float* pos_grad,
                   float* row_loss) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinishImpl)
  (n, pos, weight, largest, sum, log_sum, scale, pos_grad, row_loss);
}

void SoftmaxGradient(const Tile& scores, const float* log_sum, const float* scale,
                     const Tile& grads) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradientImpl)(scores, log_sum, scale, grads);
}

}  // namespace weft
#endif  // HWY_ONCE
