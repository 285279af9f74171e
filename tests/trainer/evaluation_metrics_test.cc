#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "services/trainer/evaluator.h"

namespace weft {
namespace {

TEST(RankTest, AllScoresEqualSeparatesTheTiePolicies) {
  const CandidateCounts all_tied{.candidates = 5, .above = 0, .ties = 5};

  EXPECT_EQ(Rank(all_tied, TiePolicy::kOptimistic), 1);
  EXPECT_EQ(Rank(all_tied, TiePolicy::kPessimistic), 6);
  EXPECT_EQ(Rank(all_tied, TiePolicy::kRealistic), 3.5);
}

TEST(RankTest, WithoutTiesAllPoliciesAgree) {
  const CandidateCounts third{.candidates = 9, .above = 2, .ties = 0};

  for (const TiePolicy policy : kTiePolicies) EXPECT_EQ(Rank(third, policy), 3);
}

TEST(ComputeMetricsTest, AveragesByHand) {
  // Ranks 1, 2, 5 and 20.
  const std::vector<CandidateCounts> counts = {
      {.candidates = 100, .above = 0, .ties = 0},
      {.candidates = 100, .above = 1, .ties = 0},
      {.candidates = 100, .above = 4, .ties = 0},
      {.candidates = 100, .above = 19, .ties = 0},
  };

  const EvaluationMetrics metrics = ComputeMetrics(counts);

  EXPECT_EQ(metrics.count, 4);
  EXPECT_DOUBLE_EQ(metrics.realistic.mrr, (1 + 0.5 + 0.2 + 0.05) / 4);
  EXPECT_DOUBLE_EQ(metrics.realistic.mean_rank, 7);
  EXPECT_DOUBLE_EQ(metrics.realistic.hits_at_1, 0.25);
  EXPECT_DOUBLE_EQ(metrics.realistic.hits_at_3, 0.5);
  EXPECT_DOUBLE_EQ(metrics.realistic.hits_at_10, 0.75);
  EXPECT_DOUBLE_EQ(metrics.realistic.hits_at_50, 1);
  EXPECT_DOUBLE_EQ(metrics.auc.value(), (1 + 0.99 + 0.96 + 0.81) / 4);
}

TEST(ComputeMetricsTest, TiesAreReportedUnderEveryPolicy) {
  const std::vector<CandidateCounts> counts = {{.candidates = 5, .above = 0, .ties = 5}};

  const EvaluationMetrics metrics = ComputeMetrics(counts);

  EXPECT_DOUBLE_EQ(metrics.optimistic.mrr, 1);
  EXPECT_DOUBLE_EQ(metrics.pessimistic.mrr, 1.0 / 6);
  EXPECT_DOUBLE_EQ(metrics.realistic.mrr, 1.0 / 3.5);
  EXPECT_DOUBLE_EQ(metrics.optimistic.hits_at_3, 1);
  EXPECT_DOUBLE_EQ(metrics.realistic.hits_at_3, 0);
  EXPECT_DOUBLE_EQ(metrics.auc.value(), 0.5);
}

TEST(ComputeMetricsTest, AnEdgeWithoutCandidatesRanksFirstAndHasNoAuc) {
  const std::vector<CandidateCounts> counts = {{.candidates = 0, .above = 0, .ties = 0}};

  const EvaluationMetrics metrics = ComputeMetrics(counts);

  EXPECT_EQ(metrics.realistic.mrr, 1);
  EXPECT_FALSE(metrics.auc.has_value());
}

TEST(ComputeMetricsTest, NoEdgesGiveZerosAndNoAuc) {
  const EvaluationMetrics metrics = ComputeMetrics({});

  EXPECT_EQ(metrics.count, 0);
  EXPECT_EQ(metrics.realistic.mrr, 0);
  EXPECT_FALSE(metrics.auc.has_value());
}

TEST(ComputeMetricsTest, BitsDoNotDependOnTheOrderOfEdges) {
  std::mt19937 random(17);
  std::vector<CandidateCounts> counts;
  for (int i = 0; i < 2000; ++i) {
    const int64_t candidates = 100 + static_cast<int64_t>(random() % 900);
    const int64_t above = static_cast<int64_t>(random() % 90);
    counts.push_back({candidates, above, static_cast<int64_t>(random() % 3)});
  }
  const EvaluationMetrics first = ComputeMetrics(counts);

  std::shuffle(counts.begin(), counts.end(), random);
  const EvaluationMetrics second = ComputeMetrics(counts);

  for (const TiePolicy policy : kTiePolicies) {
    EXPECT_EQ(first.ranks(policy).mrr, second.ranks(policy).mrr);
    EXPECT_EQ(first.ranks(policy).mean_rank, second.ranks(policy).mean_rank);
  }
  EXPECT_EQ(first.auc.value(), second.auc.value());
}

TEST(ComputeGroupMetricsTest, BothIsTheMeanOfTheSides) {
  std::vector<EdgeCounts> edges(3);
  edges[0].raw[0] = {.candidates = 9, .above = 0, .ties = 0};
  edges[0].raw[1] = {.candidates = 9, .above = 1, .ties = 0};
  edges[0].filtered[0] = {.candidates = 4, .above = 0, .ties = 0};
  edges[0].filtered[1] = {.candidates = 4, .above = 0, .ties = 0};
  edges[1].raw[0] = {.candidates = 9, .above = 9, .ties = 0};  // not in the group
  edges[2].raw[0] = {.candidates = 9, .above = 3, .ties = 0};
  edges[2].raw[1] = {.candidates = 9, .above = 3, .ties = 0};
  edges[2].filtered[0] = {.candidates = 4, .above = 1, .ties = 0};
  edges[2].filtered[1] = {.candidates = 4, .above = 3, .ties = 0};

  const GroupMetrics metrics = ComputeGroupMetrics(edges, std::vector<int64_t>{0, 2}, kSides);

  EXPECT_EQ(metrics.num_edges, 2);
  EXPECT_DOUBLE_EQ(metrics.raw.lhs.realistic.mrr, (1 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(metrics.raw.rhs.realistic.mrr, (0.5 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(metrics.raw.both.realistic.mrr, (1 + 0.5 + 0.25 + 0.25) / 4);
  EXPECT_DOUBLE_EQ(metrics.filtered.both.realistic.mrr, (1 + 1 + 0.5 + 0.25) / 4);
}

TEST(ComputeGroupMetricsTest, ASideThatWasNotAskedForCountsNothing) {
  std::vector<EdgeCounts> edges(1);
  edges[0].raw[1] = {.candidates = 9, .above = 1, .ties = 0};

  const GroupMetrics metrics =
      ComputeGroupMetrics(edges, std::vector<int64_t>{0}, std::vector<Side>{Side::kRhs});

  EXPECT_EQ(metrics.raw.lhs.count, 0);
  EXPECT_EQ(metrics.raw.both.count, 1);
  EXPECT_DOUBLE_EQ(metrics.raw.both.realistic.mrr, 0.5);
}

}  // namespace
}  // namespace weft
