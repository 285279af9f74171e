#include "services/trainer/cluster/trainer_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/recorded_metrics.h"

namespace weft {
namespace {

using testing::RecordedMetrics;

TrainingProgress ProgressOf(Bucket bucket, int64_t done_edges, double loss) {
  TrainingProgress progress;
  progress.bucket = bucket;
  progress.done_edges = done_edges;
  progress.loss = loss;
  return progress;
}

BucketStats StatsOf(Bucket bucket, int64_t edges) {
  BucketStats stats;
  stats.bucket = bucket;
  stats.trained_edges = edges;
  stats.train_seconds = 2;
  stats.train = {edges, {{"loss", 0.25}}};
  stats.eval_before = Stats{10, {{"mrr", 0.1}}};
  stats.eval_after = Stats{10, {{"mrr", 0.3}}};
  return stats;
}

RecordedMetrics PageOf(const TrainerMetrics& metrics) {
  RecordedMetrics page;
  metrics.Write(&page);
  return page;
}

TEST(TrainerMetricsTest, EdgesAreCountedOnceAsTheyAreTrained) {
  TrainerMetrics metrics;
  EXPECT_TRUE(std::isnan(PageOf(metrics).Value("weft_trainer_loss")));

  metrics.OnProgress(ProgressOf({0, 1}, 100, 0.5));
  metrics.OnProgress(ProgressOf({0, 1}, 250, 0.4));
  EXPECT_EQ(PageOf(metrics).Value("weft_trainer_trained_edges_total"), 250);
  EXPECT_EQ(PageOf(metrics).Value("weft_trainer_loss"), 0.4);

  metrics.OnBucketTrained(StatsOf({0, 1}, 400));
  const RecordedMetrics page = PageOf(metrics);
  EXPECT_EQ(page.Value("weft_trainer_trained_edges_total"), 400);
  EXPECT_EQ(page.Value("weft_trainer_trained_buckets_total"), 1);
  EXPECT_EQ(page.Value("weft_trainer_edges_per_second"), 200);
  EXPECT_EQ(page.Value("weft_trainer_loss"), 0.25);
  EXPECT_EQ(page.Value("weft_trainer_held_out_mrr{when=before}"), 0.1);
  EXPECT_EQ(page.Value("weft_trainer_held_out_mrr{when=after}"), 0.3);
}

TEST(TrainerMetricsTest, WhatABucketThatWasGivenUpHadTrainedStays) {
  TrainerMetrics metrics;

  metrics.OnProgress(ProgressOf({0, 1}, 300, 0.5));
  metrics.OnProgress(ProgressOf({0, 1}, 100, 0.5));  // from the beginning again
  metrics.OnBucketTrained(StatsOf({0, 1}, 400));
  metrics.OnBucketTrained(StatsOf({1, 1}, 50));  // too quick for any progress to be shown

  EXPECT_EQ(PageOf(metrics).Value("weft_trainer_trained_edges_total"), 750);
}

TEST(PhaseClockTest, WhatIsUnderWayCounts) {
  PhaseClock clock;
  EXPECT_EQ(clock.Seconds(TrainingPhase::kLoad), 0);
  double under_way = 0;
  {
    const PhaseClock::Span span(&clock, TrainingPhase::kLoad);
    while (under_way == 0) under_way = clock.SecondsUnderWay(TrainingPhase::kLoad);
    EXPECT_GE(clock.Seconds(TrainingPhase::kLoad), under_way);
  }

  EXPECT_GE(clock.Seconds(TrainingPhase::kLoad), under_way);
  EXPECT_EQ(clock.SecondsUnderWay(TrainingPhase::kLoad), 0);
  EXPECT_EQ(clock.Seconds(TrainingPhase::kTrain), 0);
}

}  // namespace
}  // namespace weft
