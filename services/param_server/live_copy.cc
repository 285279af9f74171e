#include "services/param_server/live_copy.h"

#include <atomic>

namespace weft {

void CopyLiveFloats(const float* from, size_t count, float* to) {
  for (size_t i = 0; i < count; ++i) {
    // Relaxed: no value is torn, and no order among them is promised.
    to[i] = std::atomic_ref<float>(const_cast<float&>(from[i])).load(std::memory_order_relaxed);
  }
}

}  // namespace weft
