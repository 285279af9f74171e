#include "services/param_server/live_copy.h"

#include <atomic>

namespace weft {

// Relaxed: no order among values is promised.

void CopyLiveFloats(const float* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) {
    to[i] = std::atomic_ref<float>(const_cast<float&>(from[i])).load(std::memory_order_relaxed);
  }
}

void MoveLiveFloats(const float* base, const float* target, size_t count, float* live) {
  for (size_t i = 0; i < count; ++i) {
    if (base[i] == target[i]) continue;
    std::atomic_ref<float> value(live[i]);
    const float now = value.load(std::memory_order_relaxed);
    value.store(now == base[i] ? target[i] : now + (target[i] - base[i]),
                std::memory_order_relaxed);
  }
}

}  // namespace weft
