#include "services/partition_server/segment_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "services/common/check.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPiece = 2 * kHugePage;           // of a whole segment, or nearly
constexpr size_t kMinPiece = kPiece - (64 << 10);  // what is smaller is mapped by itself
constexpr size_t kMinMapped = 256 << 10;           // what is smaller is the heap's
constexpr size_t kUsedForOneKept = 32;
constexpr size_t kMinKept = 1;

char* Map(size_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
}

char* MapPiece() {
  char* const begin = Map(kPiece + kHugePage);
  if (begin == nullptr) return nullptr;
  // Begins at a huge page; what is before and behind goes back.
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + kPiece, kHugePage - before);
  madvise(begin + before, kPiece, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

SegmentMemory::~SegmentMemory() {
  for (char* const piece : kept_) munmap(piece, kPiece);
}

char* SegmentMemory::Allocate(size_t bytes) {
  WEFT_CHECK(bytes <= kPiece);
  if (bytes < kMinMapped) return new (std::nothrow) char[bytes];
  if (bytes < kMinPiece) return Map(bytes);
  {
    MutexLock lock(&mu_);
    ++in_use_;
    if (!kept_.empty()) {
      char* const piece = kept_.back();
      kept_.pop_back();
      return piece;
    }
  }
  char* const piece = MapPiece();
  if (piece == nullptr) {
    MutexLock lock(&mu_);
    --in_use_;
  }
  return piece;
}

void SegmentMemory::Free(char* memory, size_t bytes) {
  if (bytes < kMinPiece) {
    bytes < kMinMapped ? delete[] memory : static_cast<void>(munmap(memory, bytes));
    return;
  }
  {
    MutexLock lock(&mu_);
    --in_use_;
    if (kept_.size() < std::max(kMinKept, in_use_ / kUsedForOneKept)) {
      kept_.push_back(memory);
      return;
    }
  }
  munmap(memory, kPiece);
}

}  // namespace weft
