// What the kernels share, compiled once for each instruction set. Included by their .cc files after
// foreach_target.h; see there for the pattern.
#if defined(WEFT_SERVICES_TRAINER_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_SERVICES_TRAINER_KERNELS_SIMD_INL_H_
#undef WEFT_SERVICES_TRAINER_KERNELS_SIMD_INL_H_
#else
#define WEFT_SERVICES_TRAINER_KERNELS_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;  // at most kVectorFloats lanes
using Vec = hn::Vec<Floats>;

HWY_INLINE float Sum(Vec v) { return hn::GetLane(hn::SumOfLanes(Floats(), v)); }
HWY_INLINE float Largest(Vec v) { return hn::GetLane(hn::MaxOfLanes(Floats(), v)); }

// Zero when every lane is finite, else NaN in some lane: x - x of infinities and NaN is NaN.
HWY_INLINE Vec NotFinite(Vec v) { return hn::Sub(v, v); }

// A vector whose first `skip` (0 or 1) lanes are zeroed: the coordinate that is a bias.
HWY_INLINE Vec SkipFirst(Vec v, int64_t skip) {
  return skip == 0 ? v : hn::IfThenZeroElse(hn::FirstN(Floats(), 1), v);
}

// Calls f(tag, i) for 0 <= i < n, in whole vectors while they fit, then in shorter ones: for rows
// that are not padded.
template <class F>
HWY_INLINE void ForEachPart(int64_t n, const F& f) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  const hn::CappedTag<float, 4> quarter;
  const int64_t few = static_cast<int64_t>(hn::Lanes(quarter));
  for (; i + few <= n; i += few) f(quarter, i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) f(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
