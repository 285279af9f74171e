#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/trainer/held_out_metrics.h"
#include "services/trainer/training_stats.h"

namespace weft {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

RandomStream Random() { return RandomStream(1, RandomUse::kTest); }

TEST(HeldOutMetricsTest, RanksCountNegativesThatScoreAtLeastAsHigh) {
  BatchScores scores;
  scores.lhs_pos = {0.5f, 0.5f};
  scores.lhs_num_neg = 3;
  scores.lhs_neg = {0.5f, 0.6f, 0.1f,   // rank 3: a tie counts
                    0.1f, 0.2f, 0.3f};  // rank 1
  HeldOutMetrics metrics;

  metrics.AddBatch({.count = 2, .loss = 3}, scores, Random());

  const Stats stats = metrics.Average();
  EXPECT_EQ(stats.count, 2);
  EXPECT_DOUBLE_EQ(stats.metrics.at("loss"), 1.5);
  EXPECT_DOUBLE_EQ(stats.metrics.at("pos_rank"), 2);
  EXPECT_DOUBLE_EQ(stats.metrics.at("mrr"), (1 + 1.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(stats.metrics.at("r1"), 0.5);
  EXPECT_DOUBLE_EQ(stats.metrics.at("r10"), 1);
  EXPECT_DOUBLE_EQ(stats.metrics.at("r50"), 1);
}

TEST(HeldOutMetricsTest, SidesAreAveraged) {
  BatchScores scores;
  scores.lhs_pos = {0};
  scores.rhs_pos = {0};
  scores.lhs_num_neg = 1;
  scores.rhs_num_neg = 1;
  scores.lhs_neg = {1};   // rank 2
  scores.rhs_neg = {-1};  // rank 1
  HeldOutMetrics metrics;

  metrics.AddBatch({.count = 1}, scores, Random());

  const Stats stats = metrics.Average();
  EXPECT_DOUBLE_EQ(stats.metrics.at("pos_rank"), 1.5);
  EXPECT_DOUBLE_EQ(stats.metrics.at("mrr"), 0.75);
  EXPECT_DOUBLE_EQ(stats.metrics.at("auc"), 0.5);  // one pair a side: lost and won
}

TEST(HeldOutMetricsTest, WithoutNegativesThereIsALossAndNoRank) {
  HeldOutMetrics metrics;
  metrics.AddBatch({.count = 4, .loss = 2}, {}, Random());

  EXPECT_THAT(metrics.Average().metrics, UnorderedElementsAre(Pair("loss", DoubleEq(0.5))));
}

TEST(HeldOutMetricsTest, SampledAucIsTheShareOfPairsThatThePositiveWins) {
  // Positive 0 against negatives of which a quarter are below: 0.25 over many pairs.
  BatchScores scores;
  const int n = 4000;
  scores.lhs_num_neg = 4;
  for (int i = 0; i < n; ++i) {
    scores.lhs_pos.push_back(0);
    for (const float s : {-1.0f, 1.0f, 2.0f, 3.0f}) scores.lhs_neg.push_back(s);
  }
  HeldOutMetrics metrics;
  metrics.AddBatch({.count = n}, scores, Random());

  EXPECT_NEAR(metrics.Average().metrics.at("auc"), 0.25, 0.03);
}

TEST(HeldOutMetricsTest, NothingEvaluatedIsEmpty) {
  EXPECT_EQ(HeldOutMetrics().Average().count, 0);
  EXPECT_THAT(HeldOutMetrics().Average().metrics, IsEmpty());
}

TEST(TrainingStatsTest, EpochsAverageTheirBucketsByEdges) {
  TrainingStats stats;
  BucketStats a;
  a.trained_edges = 10;
  a.train_seconds = 1;
  a.train = {10, {{"loss", 1.0}}};
  a.held_out_edges = 2;
  a.eval_before = Stats{2, {{"mrr", 0.5}}};
  BucketStats b;
  b.trained_edges = 30;
  b.train_seconds = 3;
  b.train = {30, {{"loss", 2.0}}};

  stats.Add({.pass = 0, .epoch = 0}, a);
  stats.Add({.pass = 0, .epoch = 0}, b);
  stats.Add({.pass = 1, .epoch = 1}, a);

  const std::vector<EpochSummary> epochs = stats.Epochs();
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0].buckets, 2);
  EXPECT_EQ(epochs[0].trained_edges, 40);
  EXPECT_DOUBLE_EQ(epochs[0].train.metrics.at("loss"), 1.75);
  EXPECT_DOUBLE_EQ(epochs[0].EdgesPerSecond(), 10);
  ASSERT_TRUE(epochs[0].eval_before.has_value());
  EXPECT_DOUBLE_EQ(epochs[0].eval_before->metrics.at("mrr"), 0.5);
  EXPECT_FALSE(epochs[0].eval_after.has_value());
  EXPECT_EQ(stats.trained_edges(), 50);
  EXPECT_DOUBLE_EQ(stats.EdgesPerSecond(), 10);
}

TEST(TrainingStatsTest, AnEmptyBucketHasNoMetrics) {
  TrainingStats stats;
  stats.Add({}, BucketStats{});
  const std::vector<EpochSummary> epochs = stats.Epochs();
  ASSERT_EQ(epochs.size(), 1u);
  EXPECT_THAT(epochs[0].train.metrics, IsEmpty());
  EXPECT_EQ(epochs[0].EdgesPerSecond(), 0);
}

}  // namespace
}  // namespace weft
