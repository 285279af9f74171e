#include "services/trainer/kernels/loss_ops.h"

#include <algorithm>
#include <cfloat>

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

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Floats()));

// exp(x) for x <= 0 (and a little more), to about 1 ulp; 0 below -86.5, and for NaN. Cody and
// Waite's reduction to |r| <= ln(2) / 2 and the polynomial of the Cephes library. Half the work of
// Highway's Exp, which is right for all x.
HWY_INLINE Vec ExpOfNegative(Vec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  // Adding 1.5 * 2^23 rounds to an integer, which then stands in the lowest bits.
  const Vec magic = hn::Set(d, 12582912.0f);
  const Vec shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const Vec n = hn::Sub(shifted, magic);
  Vec r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  Vec p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
  // Times 2^n, in the exponent's bits.
  const auto scale = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const Vec result = hn::BitCast(d, hn::Add(hn::BitCast(di, p), scale));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -86.5f)), result);
}

// log(1 + exp(x)), right for all finite x.
HWY_INLINE Vec Softplus(Vec x) {
  const Floats d;
  const Vec small = ExpOfNegative(hn::Neg(hn::Abs(x)));
  return hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, small));
}

// exp(x) / (1 + exp(x)).
HWY_INLINE Vec Sigmoid(Vec x) {
  const Floats d;
  const Vec one = hn::Set(d, 1.0f);
  const Vec small = ExpOfNegative(hn::Neg(hn::Abs(x)));
  const Vec numerator = hn::IfThenElse(hn::Ge(x, hn::Zero(d)), one, small);
  return hn::Div(numerator, hn::Add(one, small));
}

// p[i .. i + kLanes) += v, but not beyond n.
HWY_INLINE void AddToColumns(Vec v, float* p, int64_t i, int64_t n) {
  const Floats d;
  if (i + kLanes <= n) {
    hn::StoreU(hn::Add(hn::LoadU(d, p + i), v), d, p + i);
    return;
  }
  HWY_ALIGN float lanes[kVectorFloats];
  hn::Store(v, d, lanes);
  for (int64_t r = i; r < n; ++r) p[r] += lanes[r - i];
}

HWY_INLINE int64_t CountColumns(Vec count, int64_t i, int64_t n) {
  const Floats d;
  const auto columns = hn::FirstN(d, static_cast<size_t>(n - i));
  return static_cast<int64_t>(Sum(hn::IfThenElseZero(columns, count)));
}

// Calls f(i, tag) for groups of columns i .. i + tag() * kLanes, so that some vectors of sums can
// stay in registers while the rows go by and a cache line is used whole.
template <int kVectors>
struct Group {
  constexpr int operator()() const { return kVectors; }
};
template <class F>
HWY_INLINE void ForColumnGroups(int64_t cols, const F& f) {
  int64_t i = 0;
  for (; i + 3 * kLanes < cols; i += 4 * kLanes) f(i, Group<4>());
  for (; i < cols; i += kLanes) f(i, Group<1>());
}

int64_t RankingLossImpl(const LossTile& t, float margin) {
  const Floats d;
  const Vec zero = hn::Zero(d);
  const Vec one = hn::Set(d, 1.0f);
  int64_t violators = 0;
  ForColumnGroups(t.scores.cols, [&](int64_t i, auto group) HWY_ATTR {
    constexpr int kVectors = decltype(group)()();
    Vec pos[kVectors], base[kVectors], weight[kVectors];
    Vec loss[kVectors], grads[kVectors], bad[kVectors], above[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      pos[v] = hn::LoadU(d, t.pos + i + v * kLanes);
      weight[v] = hn::LoadU(d, t.weight + i + v * kLanes);
      base[v] = hn::Sub(hn::Set(d, margin), pos[v]);
      loss[v] = grads[v] = above[v] = zero;
      bad[v] = NotFinite(pos[v]);
    }
    for (int64_t j = 0; j < t.scores.rows; ++j) {
      const float* s = t.scores.row(j) + i;
      float* g = t.grads.row(j) + i;
      for (int v = 0; v < kVectors; ++v) {
        const Vec score = hn::LoadU(d, s + v * kLanes);
        const Vec term = hn::Add(base[v], score);
        const Vec grad = hn::IfThenElseZero(hn::Ge(term, zero), weight[v]);
        bad[v] = hn::MulAdd(score, zero, bad[v]);  // NaN unless finite
        above[v] = hn::Add(above[v], hn::IfThenElseZero(hn::Gt(score, pos[v]), one));
        loss[v] = hn::Add(loss[v], hn::Max(term, zero));
        grads[v] = hn::Add(grads[v], grad);
        hn::StoreU(grad, d, g + v * kLanes);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = i + v * kLanes;
      const Vec total = hn::Mul(weight[v], hn::Add(loss[v], bad[v]));
      AddToColumns(total, t.loss, at, t.scores.cols);
      AddToColumns(hn::Neg(grads[v]), t.pos_grad, at, t.scores.cols);
      violators += CountColumns(above[v], at, t.scores.cols);
    }
  });
  return violators;
}

int64_t LogisticLossImpl(const LossTile& t, float negative_weight) {
  const Floats d;
  const Vec zero = hn::Zero(d);
  const Vec one = hn::Set(d, 1.0f);
  int64_t violators = 0;
  for (int64_t i = 0; i < t.scores.cols; i += kLanes) {
    const Vec pos = hn::LoadU(d, t.pos + i);
    const Vec weight = hn::Mul(hn::LoadU(d, t.weight + i), hn::Set(d, negative_weight));
    Vec loss = zero;
    Vec bad = NotFinite(pos);
    Vec above = zero;
    for (int64_t j = 0; j < t.scores.rows; ++j) {
      const Vec score = hn::LoadU(d, t.scores.row(j) + i);
      bad = hn::MulAdd(score, zero, bad);  // NaN unless finite
      above = hn::Add(above, hn::IfThenElseZero(hn::Gt(score, pos), one));
      // Softplus and Sigmoid, whose exponential is the same.
      const Vec small = ExpOfNegative(hn::Neg(hn::Abs(score)));
      const Vec numerator = hn::IfThenElse(hn::Ge(score, zero), one, small);
      loss = hn::Add(loss, hn::Add(hn::Max(score, zero), hn::Log1p(d, small)));
      const Vec sigmoid = hn::Div(numerator, hn::Add(one, small));
      hn::StoreU(hn::Mul(weight, sigmoid), d, t.grads.row(j) + i);
    }
    AddToColumns(hn::Mul(weight, hn::Add(loss, bad)), t.loss, i, t.scores.cols);
    violators += CountColumns(above, i, t.scores.cols);
  }
  return violators;
}

void LogisticPositivesImpl(int64_t n, const float* pos, const float* weight, float* pos_grad,
                           float* loss) {
  const Floats d;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec score = hn::LoadU(d, pos + i);
    const Vec w = hn::LoadU(d, weight + i);
    AddToColumns(hn::Mul(w, hn::Add(Softplus(hn::Neg(score)), NotFinite(score))), loss, i, n);
    AddToColumns(hn::Neg(hn::Mul(w, Sigmoid(hn::Neg(score)))), pos_grad, i, n);
  }
}

// Raises `largest` to the largest score of each column, counts violators, and adds NaN to `bad`
// where something is not finite.
template <int kVectors>
HWY_INLINE int64_t ScanColumns(const Tile& scores, int64_t i, const float* positives, Vec* largest,
                               Vec* bad) {
  const Floats d;
  const Vec zero = hn::Zero(d);
  const Vec one = hn::Set(d, 1.0f);
  Vec pos[kVectors], above[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    pos[v] = hn::LoadU(d, positives + i + v * kLanes);
    bad[v] = NotFinite(pos[v]);
    above[v] = hn::Zero(d);
  }
  for (int64_t j = 0; j < scores.rows; ++j) {
    const float* s = scores.row(j) + i;
    for (int v = 0; v < kVectors; ++v) {
      const Vec score = hn::LoadU(d, s + v * kLanes);
      largest[v] = hn::Max(largest[v], score);
      bad[v] = hn::MulAdd(score, zero, bad[v]);  // NaN unless finite
      above[v] = hn::Add(above[v], hn::IfThenElseZero(hn::Gt(score, pos[v]), one));
    }
  }
  int64_t violators = 0;
  for (int v = 0; v < kVectors; ++v) {
    violators += CountColumns(above[v], i + v * kLanes, scores.cols);
  }
  return violators;
}

// From the largest score and the sum of exponentials of some columns: their loss and the gradient
// of the logarithm of the sum, which is also what the positive loses.
HWY_INLINE Vec FinishColumns(const LossTile& t, int64_t i, Vec largest, Vec sum, Vec bad,
                             Vec* log_sum) {
  const Floats d;
  const Vec w = hn::LoadU(d, t.weight + i);
  *log_sum = hn::Add(largest, hn::Log(d, sum));
  const Vec x = hn::Sub(*log_sum, hn::LoadU(d, t.pos + i));
  const Vec grad = hn::Mul(w, hn::Add(Sigmoid(x), bad));
  AddToColumns(hn::Mul(w, hn::Add(Softplus(x), bad)), t.loss, i, t.scores.cols);
  AddToColumns(hn::Neg(grad), t.pos_grad, i, t.scores.cols);
  return grad;
}

int64_t SoftmaxLossImpl(const LossTile& t) {
  const Floats d;
  int64_t violators = 0;
  ForColumnGroups(t.scores.cols, [&](int64_t i, auto group) HWY_ATTR {
    constexpr int kVectors = decltype(group)()();
    Vec largest[kVectors], bad[kVectors], sum[kVectors], factor[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      largest[v] = hn::Set(d, -FLT_MAX);
      sum[v] = hn::Zero(d);
    }
    violators += ScanColumns<kVectors>(t.scores, i, t.pos, largest, bad);
    for (int64_t j = 0; j < t.scores.rows; ++j) {
      const float* s = t.scores.row(j) + i;
      float* g = t.grads.row(j) + i;
      for (int v = 0; v < kVectors; ++v) {
        const Vec e = ExpOfNegative(hn::Sub(hn::LoadU(d, s + v * kLanes), largest[v]));
        sum[v] = hn::Add(sum[v], e);
        hn::StoreU(e, d, g + v * kLanes);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      Vec log_sum;
      const Vec grad = FinishColumns(t, i + v * kLanes, largest[v], sum[v], bad[v], &log_sum);
      factor[v] = hn::Div(grad, sum[v]);
    }
    for (int64_t j = 0; j < t.scores.rows; ++j) {
      float* g = t.grads.row(j) + i;
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(hn::Mul(factor[v], hn::LoadU(d, g + v * kLanes)), d, g + v * kLanes);
      }
    }
  });
  return violators;
}

int64_t SoftmaxAccumulateImpl(const Tile& scores, const float* pos, float* largest, float* sum) {
  const Floats d;
  int64_t violators = 0;
  ForColumnGroups(scores.cols, [&](int64_t i, auto group) HWY_ATTR {
    constexpr int kVectors = decltype(group)()();
    Vec before[kVectors], top[kVectors], bad[kVectors], total[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      before[v] = top[v] = hn::LoadU(d, largest + i + v * kLanes);
      total[v] = hn::Zero(d);
    }
    violators += ScanColumns<kVectors>(scores, i, pos, top, bad);
    for (int64_t j = 0; j < scores.rows; ++j) {
      float* s = scores.row(j) + i;
      for (int v = 0; v < kVectors; ++v) {
        const Vec e = ExpOfNegative(hn::Sub(hn::LoadU(d, s + v * kLanes), top[v]));
        total[v] = hn::Add(total[v], e);
        hn::StoreU(e, d, s + v * kLanes);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = i + v * kLanes;
      // What was summed before, in terms of the new largest score.
      const Vec old = hn::Mul(hn::LoadU(d, sum + at), ExpOfNegative(hn::Sub(before[v], top[v])));
      hn::StoreU(hn::Add(hn::Add(old, total[v]), bad[v]), d, sum + at);
      hn::StoreU(top[v], d, largest + at);
    }
  });
  return violators;
}

void SoftmaxFinishImpl(const LossTile& t, float* largest_to_log_sum, float* sum_to_scale) {
  const Floats d;
  for (int64_t i = 0; i < t.scores.cols; i += kLanes) {
    const Vec sum = hn::LoadU(d, sum_to_scale + i);
    Vec log_sum;
    const Vec grad =
        FinishColumns(t, i, hn::LoadU(d, largest_to_log_sum + i), sum, NotFinite(sum), &log_sum);
    hn::StoreU(log_sum, d, largest_to_log_sum + i);
    hn::StoreU(grad, d, sum_to_scale + i);
  }
}

void SoftmaxGradientOfExponentialsImpl(const Tile& exponentials, const float* largest,
                                       const float* log_sum, const float* scale) {
  const Floats d;
  ForColumnGroups(exponentials.cols, [&](int64_t i, auto group) HWY_ATTR {
    constexpr int kVectors = decltype(group)()();
    Vec factor[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t at = i + v * kLanes;
      const Vec x = hn::Sub(hn::LoadU(d, largest + at), hn::LoadU(d, log_sum + at));
      factor[v] = hn::Mul(hn::LoadU(d, scale + at), ExpOfNegative(x));
    }
    for (int64_t j = 0; j < exponentials.rows; ++j) {
      float* e = exponentials.row(j) + i;
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(hn::Mul(factor[v], hn::LoadU(d, e + v * kLanes)), d, e + v * kLanes);
      }
    }
  });
}

void SoftmaxGradientOfScoresImpl(const Tile& scores, const float* log_sum, const float* scale) {
  const Floats d;
  for (int64_t j = 0; j < scores.rows; ++j) {
    float* s = scores.row(j);
    for (int64_t i = 0; i < scores.cols; i += kLanes) {
      const Vec e = ExpOfNegative(hn::Sub(hn::LoadU(d, s + i), hn::LoadU(d, log_sum + i)));
      hn::StoreU(hn::Mul(hn::LoadU(d, scale + i), e), d, s + i);
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
HWY_EXPORT(SoftmaxGradientOfExponentialsImpl);
HWY_EXPORT(SoftmaxGradientOfScoresImpl);

int64_t RankingLoss(const LossTile& tile, float margin) {
  return HWY_DYNAMIC_DISPATCH(RankingLossImpl)(tile, margin);
}

int64_t SoftmaxLoss(const LossTile& tile) { return HWY_DYNAMIC_DISPATCH(SoftmaxLossImpl)(tile); }

int64_t LogisticLoss(const LossTile& tile, float negative_weight) {
  return HWY_DYNAMIC_DISPATCH(LogisticLossImpl)(tile, negative_weight);
}

void LogisticPositives(int64_t n, const float* pos, const float* weight, float* pos_grad,
                       float* loss) {
  HWY_DYNAMIC_DISPATCH(LogisticPositivesImpl)(n, pos, weight, pos_grad, loss);
}

int64_t SoftmaxAccumulate(const Tile& scores, const float* pos, float* largest, float* sum) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxAccumulateImpl)(scores, pos, largest, sum);
}

void SoftmaxFinish(const LossTile& tile, float* largest_to_log_sum, float* sum_to_scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxFinishImpl)(tile, largest_to_log_sum, sum_to_scale);
}

void SoftmaxGradientOfExponentials(const Tile& exponentials, const float* largest,
                                   const float* log_sum, const float* scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradientOfExponentialsImpl)(exponentials, largest, log_sum, scale);
}

void SoftmaxGradientOfScores(const Tile& scores, const float* log_sum, const float* scale) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradientOfScoresImpl)(scores, log_sum, scale);
}

}  // namespace weft
#endif  // HWY_ONCE
