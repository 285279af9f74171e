#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "services/trainer/batcher.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/index_permutation.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Edge = std::tuple<EntityOffset, EntityOffset, RelationTypeId, float>;

// Edge i is (i, 2 i, relation i mod num_relations), weighing i when `weighted`.
EdgeList MakeEdges(int64_t count, int num_relations, bool weighted = false) {
  EdgeList edges;
  for (int i = 0; i < count; ++i) {
    edges.lhs.push_back(i);
    edges.rhs.push_back(2 * i);
    edges.rel.push_back(i % num_relations);
    if (weighted) edges.weight.push_back(static_cast<float>(i));
  }
  return edges;
}

std::vector<Edge> Gather(const Batcher& batcher, int64_t batch, BatchColumns* columns) {
  batcher.Gather(batch, columns);
  const EdgeBatch& b = columns->batch();
  std::vector<Edge> edges;
  for (size_t i = 0; i < b.lhs.size(); ++i) {
    edges.emplace_back(b.lhs[i], b.rhs[i], b.rel[i], b.weight.empty() ? 1 : b.weight[i]);
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

std::multiset<Edge> AsSet(const EdgeList& edges) {
  std::multiset<Edge> all;
  for (size_t i = 0; i < edges.lhs.size(); ++i) {
    all.emplace(edges.lhs[i], edges.rhs[i], edges.rel[i],
                edges.weighted() ? edges.weight[i] : 1.0f);
  }
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

TEST(GroupEdgesTest, StaticRelationsAreGroupedAscending) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(7, 3), /*dynamic_relations=*/false);

  ASSERT_EQ(grouped.groups.size(), 3u);
  EXPECT_THAT(grouped.edges.rel, IsEmpty());
  for (const auto& [relation, begin, end] : grouped.groups) {
    std::set<EntityOffset> lhs(grouped.edges.lhs.begin() + begin, grouped.edges.lhs.begin() + end);
    std::set<EntityOffset> expected;
    for (int i = relation; i < 7; i += 3) expected.insert(i);
    EXPECT_EQ(lhs, expected);
    for (int64_t i = begin; i < end; ++i) {
      EXPECT_EQ(grouped.edges.rhs[i], 2 * grouped.edges.lhs[i]);
    }
  }
}

TEST(GroupEdgesTest, AbsentRelationsHaveNoGroup) {
  EdgeList edges;
  edges.lhs = {1, 2};
  edges.rhs = {3, 4};
  edges.rel = {5, 2};

  const GroupedEdges grouped = GroupEdges(edges, false);

  ASSERT_EQ(grouped.groups.size(), 2u);
  EXPECT_EQ(grouped.groups[0].relation, 2);
  EXPECT_EQ(grouped.groups[1].relation, 5);
  EXPECT_THAT(grouped.edges.lhs, ElementsAre(2, 1));
}

TEST(GroupEdgesTest, DynamicRelationsStayMixed) {
  const GroupedEdges grouped = GroupEdges(MakeEdges(7, 3), true);

  ASSERT_EQ(grouped.groups.size(), 1u);
  EXPECT_THAT(grouped.edges.rel, ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

TEST(GroupEdgesTest, NoEdgesNoGroups) {
  EXPECT_THAT(GroupEdges({}, true).groups, IsEmpty());
  EXPECT_THAT(GroupEdges({}, false).groups, IsEmpty());
}

TEST(ExtractEdgesTest, TakesThePositionsAndKeepsTheOrderOfTheOthers) {
  EdgeList edges = MakeEdges(6, 2, /*weighted=*/true);

  const EdgeList extracted = ExtractEdges(&edges, std::vector<int64_t>{0, 3, 5});

  EXPECT_THAT(extracted.lhs, ElementsAre(0, 3, 5));
  EXPECT_THAT(extracted.weight, ElementsAre(0, 3, 5));
  EXPECT_THAT(edges.lhs, ElementsAre(1, 2, 4));
  EXPECT_THAT(edges.rhs, ElementsAre(2, 4, 8));
  EXPECT_THAT(edges.rel, ElementsAre(1, 0, 0));
  EXPECT_THAT(edges.weight, ElementsAre(1, 2, 4));
}

TEST(BatcherTest, DynamicBatchesHoldEveryEdgeOnceAndTheLastIsPartial) {
  const EdgeList edges = MakeEdges(2345, 7, true);
  const GroupedEdges grouped = GroupEdges(edges, true);

  const auto batches = GatherAll(Batcher::Shuffled(grouped, {100, 1, 2, {3, 4}}), 100);

  ASSERT_EQ(batches.size(), 24u);
  for (int b = 0; b < 23; ++b) EXPECT_EQ(batches[b].size(), 100u);
  EXPECT_EQ(batches[23].size(), 45u);
  EXPECT_EQ(Join(batches), AsSet(edges));
}

TEST(BatcherTest, StaticBatchesHaveOneRelationAndEveryEdgeOnce) {
  const EdgeList edges = MakeEdges(2345, 7, true);
  const GroupedEdges grouped = GroupEdges(edges, false);
  const Batcher batcher = Batcher::Shuffled(grouped, {100, 1, 2, {3, 4}});

  const auto batches = GatherAll(batcher, 100);

  EXPECT_EQ(Join(batches), AsSet(edges));
  EXPECT_EQ(batches.size(), 7u * 4);  // 335 edges a relation
  for (size_t b = 0; b < batches.size(); ++b) {
    for (const Edge& edge : batches[b]) {
      EXPECT_EQ(std::get<2>(edge), batcher.relation(static_cast<int64_t>(b)));
    }
  }
}

TEST(BatcherTest, RelationsAreDrawnInProportionToWhatIsLeft) {
  // 90 batches of relation 0 and 10 of relation 1: the first batch is of relation 1 in a tenth of
  // the passes (standard deviation 0.0067).
  EdgeList edges;
  edges.lhs.assign(1000, 0);
  edges.rhs.assign(1000, 0);
  edges.rel.assign(1000, 0);
  std::fill(edges.rel.begin() + 900, edges.rel.end(), 1);
  const GroupedEdges grouped = GroupEdges(edges, false);
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
  const EdgeList edges = MakeEdges(5, 1);
  const GroupedEdges grouped = GroupEdges(edges, true);

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
