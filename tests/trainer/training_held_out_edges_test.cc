#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "services/common/edge_chunk.h"
#include "services/trainer/held_out_edges.h"

namespace weft {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> AllOf(const HeldOutEdges& edges, int64_t num_edges) {
  return edges.InRange({0, num_edges});
}

TEST(EdgeChunkTest, ChunksCoverABucketOnce) {
  for (const int64_t num_edges : {0, 1, 2, 7, 100, 101}) {
    for (const int num_chunks : {1, 2, 3, 7, 150}) {
      int64_t next = 0;
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        const EdgeRange range = EdgeChunkRange(num_edges, chunk, num_chunks);
        EXPECT_EQ(range.begin, next);
        EXPECT_LE(range.size(), (num_edges + num_chunks - 1) / num_chunks);
        EXPECT_GE(range.size(), num_edges / num_chunks);
        next = range.end;
      }
      EXPECT_EQ(next, num_edges);
    }
  }
}

TEST(EdgeChunkTest, OneEdgeInThreeChunksIsInTheLast) {
  EXPECT_EQ(EdgeChunkRange(1, 0, 3), (EdgeRange{0, 0}));
  EXPECT_EQ(EdgeChunkRange(1, 1, 3), (EdgeRange{0, 0}));
  EXPECT_EQ(EdgeChunkRange(1, 2, 3), (EdgeRange{0, 1}));
}

TEST(HeldOutEdgesTest, FivePercentOfAHundredThousandAreFiveThousandDistinctPositions) {
  const HeldOutEdges edges(7, 0, {0, 0}, 100'000, 0.05);

  const std::vector<int64_t> positions = AllOf(edges, 100'000);

  EXPECT_EQ(edges.count(), 5000);
  EXPECT_EQ(positions.size(), 5000u);
  EXPECT_TRUE(std::ranges::is_sorted(positions));
  EXPECT_EQ(std::ranges::adjacent_find(positions), positions.end());
  EXPECT_GE(positions.front(), 0);
  EXPECT_LT(positions.back(), 100'000);
}

TEST(HeldOutEdgesTest, CountIsTheFloorOfTheFraction) {
  EXPECT_EQ(HeldOutEdges(1, 0, {0, 0}, 19, 0.05).count(), 0);
  EXPECT_EQ(HeldOutEdges(1, 0, {0, 0}, 20, 0.05).count(), 1);
  EXPECT_EQ(HeldOutEdges(1, 0, {0, 0}, 0, 0.5).count(), 0);
  EXPECT_EQ(HeldOutEdges(1, 0, {0, 0}, 3, 0.999).count(), 2);
  EXPECT_THAT(AllOf(HeldOutEdges(1, 0, {0, 0}, 10, 0), 10), IsEmpty());
}

TEST(HeldOutEdgesTest, ChunksHoldOutTheSameEdgesAsTheWhole) {
  for (const double fraction : {0.01, 0.3, 0.9}) {
    const int64_t num_edges = 1234;
    const HeldOutEdges edges(5, 1, {2, 3}, num_edges, fraction);
    for (const int num_chunks : {1, 3, 10, 2000}) {
      std::vector<int64_t> joined;
      for (int chunk = 0; chunk < num_chunks; ++chunk) {
        const auto part = edges.InRange(EdgeChunkRange(num_edges, chunk, num_chunks));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      EXPECT_EQ(joined, AllOf(edges, num_edges)) << fraction << " " << num_chunks;
    }
  }
}

TEST(HeldOutEdgesTest, DependOnSeedEdgePathAndBucket) {
  auto positions = [](uint64_t seed, int path, Bucket bucket) {
    return AllOf(HeldOutEdges(seed, path, bucket, 1000, 0.1), 1000);
  };
  const auto some = positions(1, 0, {0, 1});
  EXPECT_EQ(positions(1, 0, {0, 1}), some);
  EXPECT_NE(positions(2, 0, {0, 1}), some);
  EXPECT_NE(positions(1, 1, {0, 1}), some);
  EXPECT_NE(positions(1, 0, {1, 0}), some);
}

TEST(HeldOutEdgesTest, PositionsOfAStratumAreEquallyLikely) {
  // 3 of 10, over many seeds.
  std::vector<int> times(10);
  const int seeds = 20'000;
  for (int seed = 0; seed < seeds; ++seed) {
    for (const int64_t at : AllOf(HeldOutEdges(seed, 0, {0, 0}, 10, 0.3), 10)) ++times[at];
  }
  // Strata of 3, 3 and 4 positions: 1/3 in the first two, 1/4 in the last. Standard deviation 67.
  EXPECT_THAT(std::vector<int>(times.begin(), times.begin() + 6),
              Each(::testing::AllOf(::testing::Ge(6333), ::testing::Le(7000))));
  EXPECT_THAT(std::vector<int>(times.begin() + 6, times.end()),
              Each(::testing::AllOf(::testing::Ge(4700), ::testing::Le(5300))));
}

}  // namespace
}  // namespace weft
