#include "tests/trainer/fused_allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace weft::testing {
namespace {

std::atomic<int64_t> allocations = 0;

}  // namespace

int64_t NumAllocations() { return allocations; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool CountsAllocations() { return false; }
#else
bool CountsAllocations() { return true; }

void* CountedAllocation(size_t size) {
  ++allocations;
  void* p = std::malloc(size);
  if (p == nullptr) std::abort();
  return p;
}
#endif

}  // namespace weft::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t size) { return weft::testing::CountedAllocation(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif
