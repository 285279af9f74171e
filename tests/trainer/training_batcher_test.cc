#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "services/trainer/batcher.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/index_permutation.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Edge i is (i, 2 i, relation i mod num_relations), weighing i when `weighted`.
PackedEdges MakeEdges(int64_t count, int num_relations, bool weighted = false) {
  PackedEdges edges(count, num_relations > 1, weighted);
  for (int i = 0; i < count; ++i) {
    edges.Append({i, 2 * i, i % num_relations, weighted ? static_cast<float>(i) : 1.0f});
  }
  return edges;
}

std::vector<Edge> Gather(const Batcher& batcher, int64_t batch, BatchColumns* columns) {
  batcher.Gather(batch, columns);
  const EdgeBatch& b = columns->batch();
  std::vector<Edge> edges;
  for (size_t i = 0; i < b.lhs.size(); ++i) {
    edges.push_back({b.lhs[i], b.rhs[i], b.rel[i], b.weight.empty() ? 1 : b.weight[i]});
  }
  return edges;
}

std::vector<std::vector<Edge>> GatherAll(const Batcher& batcher, int64_t batch_size) {
  BatchColumns columns(batch_size);
  std::vector<std::vector<Edge>> batches;
  for (int64_t b = 0; b < batcher.num_batches(); ++b) {
    batches.push_back(Gather(batcher, b, &columns));
  }
  return batches;
}

std::multiset<Edge> Join(const std::vector<std::vector<Edge>>& batches) {
  std::multiset<Edge> all;
  for (const auto& batch : batches) all.insert(batch.begin(), batch.end());
  return all;
}

std::multiset<Edge> AsSet(const PackedEdges& edges) {
  std::multiset<Edge> all;
  for (int64_t i = 0; i < edges.size(); ++i) all.insert(edges[i]);
  return all;
}

TEST(IndexPermutationTest, IsABijectionOfEverySize) {
  for (uint64_t n = 1; n < 300; ++n) {
    const IndexPermutation permutation(n, RandomStream(1, RandomUse::kTest, n));
    std::vector<bool> seen(n);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t to = permutation(i);
      ASSERT_LT(to, n);
      ASSERT_FALSE(seen[to]);
      seen[to] = true;
    }
  }
}

TEST(IndexPermutationTest, SpreadsNeighboursEvenly) {
  // 200,000 neighbours i, i + 1: the distance of their images modulo n, in 64 classes of equal
  // size, is uniform. Chi-square with 63 degrees of freedom: below 130 but for 1 in 10^6.
  const uint64_t n = 200'000;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const IndexPermutation permutation(n, RandomStream(seed, RandomUse::kTest));
    std::vector<double> classes(64);
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t distance = (permutation((i + 1) % n) + n - permutation(i)) % n;
      ++classes[distance * 64 / n];
    }
    double chi_square = 0;
    const double expected = static_cast<double>(n) / 64;
    for (const double c : classes) chi_square += (c - expected) * (c - expected) / expected;
    EXPECT_LT(chi_square, 130) << "seed " << seed;
  }
}

TEST(PackedEdgesTest, GiveBackWhatWasPutIn) {
  for (const bool relations : {true, false}) {
    for (const bool weighted : {true, false}) {
      PackedEdges edges(2, relations, weighted);
      edges.Append({1, 2, 3, 0.25f});
      edges.Append({4, 5, 6, 1.9f});
      edges.Swap(0, 1);
      EXPECT_EQ(edges[0], (Edge{4, 5, relations ? 6 : 0, weighted ? 1.9f : 1.0f}));
      EXPECT_EQ(edges[1], (Edge{1, 2, relations ? 3 : 0, weighted ? 0.25f : 1.0f}));
      EXPECT_EQ(edges.bytes(), 2 * 4 * (2 + relations + weighted));
    }
  }
}

TEST(GroupEdgesTest, StaticRelationsAreGroupedAscending) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(7, 3), /*dynamic_relations=*/false);

  ASSERT_EQ(grouped.groups.size(), 3u);
  EXPECT_EQ(AsSet(grouped.edges), AsSet(MakeEdges(7, 3)));
  int64_t next = 0;
  for (RelationTypeId r = 0; r < 3; ++r) {
    EXPECT_EQ(grouped.groups[r].relation, r);
    EXPECT_EQ(grouped.groups[r].begin, next);
    EXPECT_EQ(grouped.groups[r].size(), r == 0 ? 3 : 2);
    for (; next < grouped.groups[r].end; ++next) EXPECT_EQ(grouped.edges[next].rel, r);
  }
}

TEST(GroupEdgesTest, AbsentRelationsHaveNoGroup) {
  PackedEdges edges(2, true, false);
  edges.Append({1, 3, 5});
  edges.Append({2, 4, 2});

  const GroupedEdges grouped = GroupEdges(std::move(edges), false);

  ASSERT_EQ(grouped.groups.size(), 2u);
  EXPECT_EQ(grouped.groups[0].relation, 2);
  EXPECT_EQ(grouped.groups[1].relation, 5);
  EXPECT_EQ(grouped.edges[0].lhs, 2);
  EXPECT_EQ(grouped.edges[1].lhs, 1);
}

TEST(GroupEdgesTest, DynamicRelationsStayMixed) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(7, 3), true);

  ASSERT_EQ(grouped.groups.size(), 1u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(grouped.edges[i].rel, i % 3);
}

TEST(GroupEdgesTest, NoEdgesNoGroups) {
  EXPECT_THAT(GroupEdges({}, true).groups, IsEmpty());
  EXPECT_THAT(GroupEdges({}, false).groups, IsEmpty());
}

TEST(BatcherTest, DynamicBatchesHoldEveryEdgeOnceAndTheLastIsPartial) {
  const PackedEdges edges = MakeEdges(2345, 7, true);
  const GroupedEdges grouped = GroupEdges(MakeEdges(2345, 7, true), true);

  const auto batches = GatherAll(Batcher::Shuffled(grouped, {100, 1, 2, {3, 4}}), 100);

  ASSERT_EQ(batches.size(), 24u);
  for (int b = 0; b < 23; ++b) EXPECT_EQ(batches[b].size(), 100u);
  EXPECT_EQ(batches[23].size(), 45u);
  EXPECT_EQ(Join(batches), AsSet(edges));
}

TEST(BatcherTest, StaticBatchesHaveOneRelationAndEveryEdgeOnce) {
  const PackedEdges edges = MakeEdges(2345, 7, true);
  const GroupedEdges grouped = GroupEdges(MakeEdges(2345, 7, true), false);
  const Batcher batcher = Batcher::Shuffled(grouped, {100, 1, 2, {3, 4}});

  const auto batches = GatherAll(batcher, 100);

  EXPECT_EQ(Join(batches), AsSet(edges));
  EXPECT_EQ(batches.size(), 7u * 4);  // 335 edges a relation
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const Edge& edge : batches[b]) {
      EXPECT_EQ(edge.rel, batcher.relation(static_cast<int64_t>(b)));
    }
  }
}

TEST(BatcherTest, RelationsAreDrawnInProportionToWhatIsLeft) {
  // 90 batches of relation 0 and 10 of relation 1: the first batch is of relation 1 in a tenth of
  // the passes (standard deviation 0.0067).
  PackedEdges edges(1000, true, false);
  for (int i = 0; i < 1000; ++i) edges.Append({0, 0, i < 900 ? 0 : 1});
  const GroupedEdges grouped = GroupEdges(std::move(edges), false);
  int first_of_1 = 0;
  double place_of_1 = 0;
  const int passes = 2000;
  for (int pass = 0; pass < passes; ++pass) {
    const Batcher batcher = Batcher::Shuffled(grouped, {10, 1, pass, {0, 0}});
    first_of_1 += batcher.relation(0);
    for (int64_t b = 0; b < 100; ++b) {
      place_of_1 += batcher.relation(b) * static_cast<double>(b) / (10.0 * passes);
    }
  }
  EXPECT_NEAR(first_of_1 / static_cast<double>(passes), 0.1, 0.03);
  EXPECT_NEAR(place_of_1, 49.5, 2);  // the mean place in a pass: spread evenly
}

TEST(BatcherTest, OrderIsAFunctionOfSeedPassAndBucket) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(500, 1), true);
  auto order = [&](uint64_t seed, int64_t pass, Bucket bucket) {
    return GatherAll(Batcher::Shuffled(grouped, {50, seed, pass, bucket}), 50);
  };
  const auto some = order(1, 0, {0, 0});
  EXPECT_EQ(order(1, 0, {0, 0}), some);
  EXPECT_NE(order(2, 0, {0, 0}), some);
  EXPECT_NE(order(1, 1, {0, 0}), some);
  EXPECT_NE(order(1, 0, {0, 1}), some);
}

TEST(BatcherTest, BatchesCanBeGatheredInAnyOrder) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(500, 3), false);
  const Batcher batcher = Batcher::Shuffled(grouped, {50, 1, 0, {0, 0}});
  const auto in_order = GatherAll(batcher, 50);
  BatchColumns columns(50);
  for (int64_t b = batcher.num_batches() - 1; b >= 0; --b) {
    EXPECT_EQ(Gather(batcher, b, &columns), in_order[b]);
  }
}

TEST(BatcherTest, InOrderKeepsTheOrderOfTheEdges) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(5, 1), true);

  const auto batches = GatherAll(Batcher::InOrder(grouped, 2), 2);

  ASSERT_EQ(batches.size(), 3u);
  EXPECT_THAT(batches[0], ElementsAre(Edge{0, 0, 0, 1}, Edge{1, 2, 0, 1}));
  EXPECT_THAT(batches[2], ElementsAre(Edge{4, 8, 0, 1}));
}

TEST(BatcherTest, NoEdgesNoBatches) {
  const GroupedEdges grouped = GroupEdges({}, true);
  EXPECT_EQ(Batcher::Shuffled(grouped, {10, 1, 0, {0, 0}}).num_batches(), 0);
  EXPECT_EQ(Batcher::InOrder(grouped, 10).num_batches(), 0);
}

}  // namespace
}  // namespace weft
