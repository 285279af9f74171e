// Featurized entities in an evaluation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "services/trainer/bag_index.h"
#include "services/trainer/evaluator.h"
#include "services/trainer/ranking_queries.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using Bag = std::vector<EntityOffset>;

TEST(BagIndexTest, EntitiesWithTheSameFeaturesAreOne) {
  BagIndex index(2);

  EXPECT_EQ(index.Number({0, 0}, Bag{3, 1}, /*add=*/true), 0);
  EXPECT_EQ(index.Number({0, 0}, Bag{}, true), 1);
  EXPECT_EQ(index.Number({0, 0}, Bag{1, 3}, true), 0);
  EXPECT_EQ(index.Number({0, 0}, Bag{1, 3, 3}, true), 2);
  EXPECT_EQ(index.Number({1, 0}, Bag{1, 3}, true), 0);  // another type
  EXPECT_EQ(index.Number({0, 1}, Bag{1, 3}, true), 3);  // other features
  EXPECT_EQ(index.Number({0, 1}, Bag{}, true), 1);

  EXPECT_EQ(index.Number({0, 0}, Bag{3, 3, 1}, /*add=*/false), 2);
  EXPECT_EQ(index.Number({0, 1}, Bag{3, 3, 1}, false), BagIndex::kUnknown);
  EXPECT_EQ(index.Number({0, 0}, Bag{2}, false), BagIndex::kUnknown);
  EXPECT_EQ(index.bags(0).size(), 4);
  EXPECT_THAT(index.partitions(0), ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(index.bags(1).size(), 1);
}

TEST(BagIndexTest, AVectorIsTheMeanOfFeaturesThatAreNotTooLong) {
  FloatBlock features(3, 2);
  std::ranges::copy(std::vector<float>{2, 0, 0, 4, 3, 4}, features.data());
  const auto mean = [&](const Bag& bag, float max_norm) {
    std::vector<float> vector(2, -1.0f);
    MeanOfFeatures(features, bag, max_norm, vector);
    return vector;
  };

  EXPECT_THAT(mean({0, 1}, 0), ElementsAre(1, 2));
  EXPECT_THAT(mean({}, 0), ElementsAre(0, 0));
  EXPECT_THAT(mean({2, 2, 0, 0}, 0), ElementsAre(2.5, 2));

  EXPECT_NEAR(mean({0, 1}, 2)[1], 1, 1e-6);           // (2, 0) and (0, 2)
  EXPECT_NEAR(mean({2, 2, 0, 0}, 2)[0], 1.6f, 1e-6);  // (1.2, 1.6) and (2, 0)
}

TEST(RankingQueriesTest, NobodyAsksForAFeaturizedSide) {
  ModelSpec spec;
  spec.entity_types = {{"document", 4}, {"reader", 4}};
  spec.relations = {{.name = "read_by", .lhs = 0, .rhs = 1, .operator_name = "none"},
                    {.name = "knows", .lhs = 1, .rhs = 1, .operator_name = "none"}};
  spec.featurized_relations[0] = {1, 0};
  const std::vector<IndexedEdge> edges = {{7, 2, 0}, {3, 2, 1}};

  const RankingQueries queries(spec, edges, kSides);

  int asked_for_rhs = 0;
  for (const RankingQuery& query : queries.queries()) {
    if (query.corrupted == Side::kLhs) {
      EXPECT_EQ(query.rel, 1);
    } else {
      ++asked_for_rhs;
    }
  }
  EXPECT_EQ(queries.queries().size(), 3u);
  EXPECT_EQ(asked_for_rhs, 2);
}

TEST(GroupMetricsTest, ASideThatCannotBeAskedForIsNoRank) {
  std::vector<EdgeCounts> edges(2);
  for (EdgeCounts& edge : edges) {
    for (int side = 0; side < 2; ++side) {
      edge.raw[side] = edge.filtered[side] = {.candidates = 10, .above = 1, .ties = 0};
    }
  }
  edges[0].raw[0] = edges[0].filtered[0] = {};
  edges[0].unranked[0] = true;

  const GroupMetrics metrics = ComputeGroupMetrics(edges, std::vector<int64_t>{0, 1}, kSides);

  EXPECT_EQ(metrics.num_edges, 2);
  EXPECT_EQ(metrics.raw.lhs.count, 1);
  EXPECT_EQ(metrics.raw.rhs.count, 2);
  EXPECT_DOUBLE_EQ(metrics.filtered.both.realistic.mrr, 0.5);
}

}  // namespace
}  // namespace weft
