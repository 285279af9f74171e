// Philox4x32-10 of services/common/random.h, one block a lane: the same bits on every CPU.
// Included by kernels once for every SIMD target (see Highway's foreach_target.h).

#include <array>
#include <cstdint>

// Per-target include guard.
#if defined(WEFT_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_PHILOX_INL_H_
#undef WEFT_KERNELS_PHILOX_INL_H_
#else
#define WEFT_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {

using PhiloxTag = hwy::HWY_NAMESPACE::ScalableTag<uint32_t>;
using PhiloxVec = hwy::HWY_NAMESPACE::Vec<PhiloxTag>;

// The halves of the 64-bit products of all lanes with `factor`.
HWY_INLINE void WideMul(PhiloxVec a, uint32_t factor, PhiloxVec* high, PhiloxVec* low) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PhiloxTag d;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(a)} * factor;
  *high = hn::Set(d, static_cast<uint32_t>(product >> 32));
  *low = hn::Set(d, static_cast<uint32_t>(product));
#else
  const hn::RepartitionToWide<PhiloxTag> wide;
  const PhiloxVec f = hn::Set(d, factor);
  const auto even = hn::MulEven(a, f);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), f);
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
#endif
}

// Four words: a counter, or the random numbers of it.
struct PhiloxBlock {
  PhiloxVec x[4];
};

HWY_INLINE PhiloxBlock PhiloxLanes(PhiloxBlock c, std::array<uint32_t, 2> key) {
  namespace hn = hwy::HWY_NAMESPACE;
  const PhiloxTag d;
  for (int round = 0; round < 10; ++round) {
    PhiloxVec high0, low0, high2, low2;
    WideMul(c.x[0], 0xD2511F53, &high0, &low0);
    WideMul(c.x[2], 0xCD9E8D57, &high2, &low2);
    c.x[0] = hn::Xor(hn::Xor(high2, c.x[1]), hn::Set(d, key[0]));
    c.x[1] = low2;
    c.x[2] = hn::Xor(hn::Xor(high0, c.x[3]), hn::Set(d, key[1]));
    c.x[3] = low0;
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#endif  // include guard
