#include "services/trainer/kernels/uniform_indices.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "services/trainer/kernels/uniform_indices.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "services/trainer/kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace weft {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void FillUniformIndices(std::array<uint32_t, 2> key, std::array<uint32_t, 3> counter, int64_t n,
                        uint32_t bound, int32_t* HWY_RESTRICT out) {
  const PhiloxTag d;
  const hn::RebindToSigned<PhiloxTag> di;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN int32_t last[4 * hn::MaxLanes(PhiloxTag())];
  for (int64_t i = 0; i < n; i += 4 * lanes) {
    PhiloxBlock block =
        PhiloxLanes({hn::Iota(d, static_cast<uint32_t>(i / 4)), hn::Set(d, counter[0]),
                     hn::Set(d, counter[1]), hn::Set(d, counter[2])},
                    key);
    // The upper half of word * bound is uniform below bound.
    for (PhiloxVec& x : block.x) {
      PhiloxVec low;
      WideMul(x, bound, &x, &low);
    }
    const bool whole = i + 4 * lanes <= n;
    hn::StoreInterleaved4(hn::BitCast(di, block.x[0]), hn::BitCast(di, block.x[1]),
                          hn::BitCast(di, block.x[2]), hn::BitCast(di, block.x[3]), di,
                          whole ? out + i : last);
    if (!whole) std::copy_n(last, n - i, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace weft
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft {

HWY_EXPORT(FillUniformIndices);

void FillUniformIndices(std::array<uint32_t, 2> key, std::array<uint32_t, 3> counter, int64_t n,
                        uint32_t bound, int32_t* out) {
  HWY_DYNAMIC_DISPATCH(FillUniformIndices)(key, counter, n, bound, out);
}

}  // namespace weft
#endif  // HWY_ONCE
