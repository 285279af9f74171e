// Compiled with -ffp-contract=off: a product and a sum stay two operations on every CPU.
#include "services/trainer/kernels/normal_rows.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/normal_rows.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "services/trainer/kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::RebindToSigned<F>;
using VF = hn::Vec<F>;
using VI = hn::Vec<I>;

// c[0] + x (c[1] + x (c[2] + ...)).
template <size_t n>
HWY_INLINE VF Polynomial(VF x, const float (&c)[n]) {
  const F d;
  VF sum = hn::Set(d, c[n - 1]);
  for (size_t i = n - 1; i-- > 0;) sum = hn::Add(hn::Mul(sum, x), hn::Set(d, c[i]));
  return sum;
}

// sqrt(-2 ln u) of u = (bits + 1) / 2^31 in (0, 1], bits 31 wide.
HWY_INLINE VF Radius(PhiloxVec random) {
  const F d;
  const I di;
  const VI bits = hn::BitCast(di, hn::ShiftRight<1>(random));
  // 2^-31 (bits + 1); the sum is rounded, never to 0.
  const VF u = hn::Mul(hn::Add(hn::ConvertTo(d, bits), hn::Set(d, 1.0f)), hn::Set(d, 0x1p-31f));
  // u = 2^e m with m in [sqrt(1/2), sqrt(2)).
  const VI offset = hn::Sub(hn::BitCast(di, u), hn::Set(di, 0x3F3504F3));
  const VF e = hn::ConvertTo(d, hn::ShiftRight<23>(offset));
  const VF m =
      hn::BitCast(d, hn::Add(hn::And(offset, hn::Set(di, 0x007FFFFF)), hn::Set(di, 0x3F3504F3)));
  const VF x = hn::Sub(m, hn::Set(d, 1.0f));
  // ln(1 + x) = x - x^2 / 2 + x^3 p(x); p fitted on [sqrt(1/2) - 1, sqrt(2) - 1] (Cephes, logf).
  static constexpr float kLog[] = {3.3333331174e-1f,  -2.4999993993e-1f, 2.0000714765e-1f,
                                   -1.6668057665e-1f, 1.4249322787e-1f,  -1.2420140846e-1f,
                                   1.1676998740e-1f,  -1.1514610310e-1f, 7.0376836292e-2f};
  const VF x2 = hn::Mul(x, x);
  const VF tail =
      hn::Sub(hn::Mul(hn::Mul(x, x2), Polynomial(x, kLog)), hn::Mul(x2, hn::Set(d, 0.5f)));
  const VF ln = hn::Add(hn::Mul(e, hn::Set(d, 0.693147181f)), hn::Add(x, tail));
  return hn::Sqrt(hn::Max(hn::Mul(ln, hn::Set(d, -2.0f)), hn::Zero(d)));
}

// cos and sin of 2 pi random / 2^32.
HWY_INLINE void CosSin(PhiloxVec random, VF* cosine, VF* sine) {
  const F d;
  const I di;
  const PhiloxTag du;
  // The nearest quarter turn, and the angle from there in [-pi/4, pi/4), exactly 24 bits wide.
  const PhiloxVec turned = hn::Add(random, hn::Set(du, uint32_t{1} << 29));
  const PhiloxVec quarter = hn::ShiftRight<30>(turned);
  const VI rest =
      hn::Sub(hn::BitCast(di, hn::And(hn::ShiftRight<6>(turned), hn::Set(du, 0x00FFFFFF))),
              hn::Set(di, 0x00800000));
  const VF angle = hn::Mul(hn::ConvertTo(d, rest), hn::Set(d, 1.57079633f * 0x1p-24f));
  const VF a2 = hn::Mul(angle, angle);
  // sin a = a + a^3 p(a^2), cos a = 1 - a^2 / 2 + a^4 q(a^2) (Cephes, sinf and cosf).
  static constexpr float kSin[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  static constexpr float kCos[] = {4.166664568298827e-2f, -1.388731625493765e-3f,
                                   2.443315711809948e-5f};
  const VF s = hn::Add(angle, hn::Mul(hn::Mul(angle, a2), Polynomial(a2, kSin)));
  const VF c = hn::Add(hn::Sub(hn::Set(d, 1.0f), hn::Mul(a2, hn::Set(d, 0.5f))),
                       hn::Mul(hn::Mul(a2, a2), Polynomial(a2, kCos)));
  // Turned by `quarter`: 1 swaps the two, and the signs follow.
  const auto odd = hn::RebindMask(d, hn::TestBit(quarter, hn::Set(du, 1u)));
  const PhiloxVec half = hn::ShiftLeft<30>(hn::And(quarter, hn::Set(du, 2u)));
  const PhiloxVec cos_sign =
      hn::ShiftLeft<30>(hn::And(hn::Add(quarter, hn::Set(du, 1u)), hn::Set(du, 2u)));
  *cosine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cos_sign));
  *sine = hn::BitCast(d, hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), half));
}

void FillNormalRows(std::array<uint32_t, 2> key, int64_t first_row, int64_t num_rows,
                    int64_t dimension, float scale, float* HWY_RESTRICT out) {
  const F d;
  const PhiloxTag du;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float values[4 * hn::MaxLanes(F())];
  const VF factor = hn::Set(d, scale);
  for (int64_t i = 0; i < num_rows; ++i) {
    const auto row = static_cast<uint64_t>(first_row + i);
    float* const to = out + i * dimension;
    for (int64_t column = 0; column < dimension; column += 4 * lanes) {
      const PhiloxBlock block = PhiloxLanes(
          {hn::Iota(du, static_cast<uint32_t>(column / 4)), hn::Set(du, static_cast<uint32_t>(row)),
           hn::Set(du, static_cast<uint32_t>(row >> 32)), hn::Zero(du)},
          key);
      const VF radius0 = hn::Mul(Radius(block.x[0]), factor);
      const VF radius1 = hn::Mul(Radius(block.x[2]), factor);
      VF cos0, sin0, cos1, sin1;
      CosSin(block.x[1], &cos0, &sin0);
      CosSin(block.x[3], &cos1, &sin1);
      hn::StoreInterleaved4(hn::Mul(radius0, cos0), hn::Mul(radius0, sin0), hn::Mul(radius1, cos1),
                            hn::Mul(radius1, sin1), d, values);
      std::copy_n(values, std::min(4 * lanes, dimension - column), to + column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

HWY_EXPORT(FillNormalRows);

void FillNormalRows(std::array<uint32_t, 2> key, int64_t first_row, int64_t num_rows,
                    int64_t dimension, float scale, float* out) {
  HWY_DYNAMIC_DISPATCH(FillNormalRows)(key, first_row, num_rows, dimension, scale, out);
}

}  // namespace weft
#endif  // HWY_ONCE
