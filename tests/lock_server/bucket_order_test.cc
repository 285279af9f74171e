#include "services/lock_server/bucket_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr BucketOrder kOrders[] = {BucketOrder::kRandom, BucketOrder::kAffinity,
                                   BucketOrder::kInsideOut, BucketOrder::kOutsideIn};

bool SharesPartition(Bucket a, Bucket b) {
  return a.lhs == b.lhs || a.rhs == b.rhs || a.lhs == b.rhs || a.rhs == b.lhs;
}

int Layer(Bucket b) { return std::min(b.lhs, b.rhs); }

TEST(BucketOrderTest, EveryOrderHasEveryBucketOnce) {
  for (const BucketOrder order : kOrders) {
    for (const auto& [lhs, rhs] : {std::pair(1, 1), {1, 5}, {5, 1}, {4, 4}, {3, 7}, {7, 3}}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(order) << " " << lhs << "x" << rhs);

      const std::vector<Bucket> buckets = MakeBucketOrder(order, lhs, rhs, 1, 0);

      const std::set<Bucket> distinct(buckets.begin(), buckets.end());
      EXPECT_EQ(buckets.size(), static_cast<size_t>(lhs * rhs));
      EXPECT_EQ(distinct.size(), buckets.size());
      for (const Bucket& b : distinct) {
        EXPECT_TRUE(b.lhs >= 0 && b.lhs < lhs && b.rhs >= 0 && b.rhs < rhs);
      }
    }
  }
}

TEST(BucketOrderTest, AnOrderIsAFunctionOfSeedAndPass) {
  for (const BucketOrder order : kOrders) {
    const std::vector<Bucket> first = MakeBucketOrder(order, 8, 8, 1, 0);

    EXPECT_EQ(MakeBucketOrder(order, 8, 8, 1, 0), first);
    EXPECT_NE(MakeBucketOrder(order, 8, 8, 1, 1), first);
    EXPECT_NE(MakeBucketOrder(order, 8, 8, 2, 0), first);
  }
}

TEST(BucketOrderTest, OutsideInVisitsLayersFromTheFirst) {
  const std::vector<Bucket> buckets = MakeBucketOrder(BucketOrder::kOutsideIn, 5, 5, 3, 0);

  EXPECT_TRUE(std::ranges::is_sorted(buckets, {}, Layer));
}

TEST(BucketOrderTest, InsideOutVisitsLayersFromTheLast) {
  const std::vector<Bucket> buckets = MakeBucketOrder(BucketOrder::kInsideOut, 3, 5, 3, 0);

  EXPECT_TRUE(std::ranges::is_sorted(buckets, std::greater<>(), Layer));
  EXPECT_EQ(Layer(buckets.front()), 2);
}

TEST(BucketOrderTest, LayersKeepABucketAndItsTransposeTogether) {
  for (const BucketOrder order : {BucketOrder::kInsideOut, BucketOrder::kOutsideIn}) {
    const std::vector<Bucket> buckets = MakeBucketOrder(order, 6, 6, 3, 0);

    for (size_t i = 0; i < buckets.size(); ++i) {
      const auto transpose = std::ranges::find(buckets, Bucket{buckets[i].rhs, buckets[i].lhs});
      EXPECT_LE(std::abs(transpose - buckets.begin() - static_cast<long>(i)), 1);
    }
  }
}

TEST(BucketOrderTest, AffinityMovesToABucketThatSharesAPartitionWhileThereIsOne) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Bucket> buckets = MakeBucketOrder(BucketOrder::kAffinity, 6, 6, seed, 0);

    for (size_t i = 0; i + 1 < buckets.size(); ++i) {
      const auto rest = buckets.begin() + static_cast<long>(i) + 1;
      const bool possible = std::any_of(
          rest, buckets.end(), [&](const Bucket& b) { return SharesPartition(b, buckets[i]); });
      EXPECT_TRUE(!possible || SharesPartition(*rest, buckets[i])) << "at " << i;
    }
  }
}

TEST(BucketOrderTest, AffinityPutsTheTransposeNext) {
  const std::vector<Bucket> buckets = MakeBucketOrder(BucketOrder::kAffinity, 4, 4, 5, 0);

  for (size_t i = 0; i + 1 < buckets.size(); ++i) {
    const Bucket transpose = {buckets[i].rhs, buckets[i].lhs};
    const auto at = std::ranges::find(buckets, transpose) - buckets.begin();
    EXPECT_LE(std::abs(at - static_cast<long>(i)), 1) << "at " << i;
  }
}

// Partitions loaded beyond the first `places` when the buckets are visited in this order and what
// is wanted last is let go (Belady).
int CountLoads(const std::vector<Bucket>& order, size_t places) {
  std::set<int> memory;
  int loads = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    for (const int needed : {order[i].lhs, order[i].rhs}) {
      if (memory.contains(needed)) continue;
      ++loads;
      if (memory.size() == places) {
        int victim = -1;
        size_t farthest = 0;
        for (const int candidate : memory) {
          if (candidate == order[i].lhs || candidate == order[i].rhs) continue;
          size_t next = i;
          while (next < order.size() && order[next].lhs != candidate &&
                 order[next].rhs != candidate) {
            ++next;
          }
          if (victim < 0 || next > farthest) {
            victim = candidate;
            farthest = next;
          }
        }
        memory.erase(victim);
      }
      memory.insert(needed);
    }
  }
  return loads - static_cast<int>(places);
}

TEST(BetaOrderTest, HasEveryBucketOnce) {
  for (const auto& [partitions, resident] :
       {std::pair(1, 2), {2, 2}, {3, 2}, {8, 3}, {16, 8}, {5, 9}}) {
    SCOPED_TRACE(::testing::Message() << partitions << " of which " << resident);

    const std::vector<Bucket> buckets = MakeBetaOrder(partitions, resident, 1, 0);

    const std::set<Bucket> distinct(buckets.begin(), buckets.end());
    EXPECT_EQ(buckets.size(), static_cast<size_t>(partitions * partitions));
    EXPECT_EQ(distinct.size(), buckets.size());
  }
}

TEST(BetaOrderTest, LoadsAboutAsFewPartitionsAsIsPossible) {
  for (const auto& [p, c] : {std::pair(8, 3), {16, 4}, {32, 4}, {32, 8}, {64, 16}}) {
    SCOPED_TRACE(::testing::Message() << p << " of which " << c);

    const int loads = CountLoads(MakeBetaOrder(p, c, 1, 0), static_cast<size_t>(c));

    // No order can do with fewer: each load brings c - 1 new pairs together at most.
    const double bound = (p * (p - 1) / 2.0 - c * (c - 1) / 2.0) / (c - 1);
    EXPECT_GE(loads, static_cast<int>(bound));
    EXPECT_LE(loads, 1.25 * bound + c);
  }
}

TEST(BetaOrderTest, AllInMemoryNeedsNoFurtherLoad) {
  EXPECT_EQ(CountLoads(MakeBetaOrder(4, 4, 1, 0), 4), 0);
}

}  // namespace
}  // namespace weft
