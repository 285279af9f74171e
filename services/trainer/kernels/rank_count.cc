#include "services/trainer/kernels/rank_count.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/rank_count.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

RankCount CountAboveAndTies(const float* HWY_RESTRICT scores, int64_t n, float threshold) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto bound = hn::Set(d, threshold);
  RankCount count;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, scores + i);
    count.above += static_cast<int64_t>(hn::CountTrue(d, hn::Gt(x, bound)));
    count.ties += static_cast<int64_t>(hn::CountTrue(d, hn::Eq(x, bound)));
  }
  for (; i < n; ++i) {
    count.above += scores[i] > threshold ? 1 : 0;
    count.ties += scores[i] == threshold ? 1 : 0;
  }
  return count;
}

int64_t FindNonFinite(const float* HWY_RESTRICT values, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // x * 0 is 0 for finite x and NaN otherwise; a sum keeps NaN. One test a block of vectors.
  const auto zero = hn::Zero(d);
  constexpr int64_t kVectors = 16;
  int64_t i = 0;
  for (; i + kVectors * lanes <= n; i += kVectors * lanes) {
    auto sum0 = zero;
    auto sum1 = zero;
    for (int64_t k = 0; k < kVectors; k += 2) {
      sum0 = hn::MulAdd(hn::LoadU(d, values + i + k * lanes), zero, sum0);
      sum1 = hn::MulAdd(hn::LoadU(d, values + i + (k + 1) * lanes), zero, sum1);
    }
    const auto sum = hn::Add(sum0, sum1);
    if (!hn::AllTrue(d, hn::Eq(sum, zero))) break;  // somewhere in this block
  }
  for (; i < n; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

HWY_EXPORT(CountAboveAndTies);
HWY_EXPORT(FindNonFinite);

RankCount CountAboveAndTies(const float* scores, int64_t n, float threshold) {
  return HWY_DYNAMIC_DISPATCH(CountAboveAndTies)(scores, n, threshold);
}

int64_t FindNonFinite(const float* values, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(FindNonFinite)(values, n);
}

}  // namespace weft
#endif  // HWY_ONCE
