#include "services/common/finite.h"

#include <bit>
#include <cstdint>

namespace weft {
namespace {

// A value's exponent bits are all ones exactly when it is infinite or NaN.
constexpr uint32_t kExponent = 0x7F800000;

bool IsFinite(float x) { return (std::bit_cast<uint32_t>(x) & kExponent) != kExponent; }

}  // namespace

size_t FirstNotFinite(std::span<const float> values) {
  constexpr size_t kGroup = 64;  // one branch a group: the compiler makes vectors of it
  size_t i = 0;
  for (; i + kGroup <= values.size(); i += kGroup) {
    uint32_t bad = 0;
    for (size_t k = 0; k < kGroup; ++k) bad |= static_cast<uint32_t>(!IsFinite(values[i + k]));
    if (bad != 0) break;
  }
  while (i < values.size() && IsFinite(values[i])) ++i;
  return i;
}

}  // namespace weft
