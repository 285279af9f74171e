#include "services/partition_server/segment_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <utility>
#include <vector>

#include "services/partition_server/blob_format.h"

namespace weft {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The address space that this process has.
int64_t Mapped() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

class Pieces {
 public:
  Pieces(int count, int64_t size) {
    const auto bytes = static_cast<size_t>(size);
    for (int i = 0; i < count; ++i) pieces_.emplace_back(memory_.Allocate(bytes), bytes);
  }
  ~Pieces() { Free(); }

  void Free() {
    for (const auto& [piece, bytes] : std::exchange(pieces_, {})) memory_.Free(piece, bytes);
  }

 private:
  SegmentMemory memory_;
  std::vector<std::pair<char*, size_t>> pieces_;
};

TEST(SegmentMemoryTest, WhatIsFreedGoesBackButForASmallPart) {
  constexpr int kCount = 64;
  const int64_t before = Mapped();

  Pieces segments(kCount, kSegmentBytes);
  EXPECT_NEAR(Mapped() - before, kCount * 4 * kMiB, 8 * kMiB);

  segments.Free();
  EXPECT_NEAR(Mapped() - before, 4 * kMiB, 8 * kMiB);
}

TEST(SegmentMemoryTest, TheEndOfABlobTakesAsMuchAsItHas) {
  constexpr int kCount = 64;
  const int64_t before = Mapped();

  const Pieces large(kCount, 5 * kMiB / 2);
  EXPECT_NEAR(Mapped() - before, kCount * 5 * kMiB / 2, 8 * kMiB);

  const Pieces small(kCount, kMiB / 2);
  EXPECT_NEAR(Mapped() - before, kCount * 3 * kMiB, 8 * kMiB);
}

TEST(SegmentMemoryTest, PiecesOfEverySizeCanBeWritten) {
  SegmentMemory memory;
  for (const size_t bytes : {size_t{1}, size_t{256} << 10, size_t{3} << 20, size_t{4} << 20}) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      char* const piece = memory.Allocate(bytes);
      ASSERT_NE(piece, nullptr);
      piece[0] = 'a';
      piece[bytes - 1] = 'z';
      memory.Free(piece, bytes);
    }
  }
}

}  // namespace
}  // namespace weft
