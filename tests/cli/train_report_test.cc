#include "cli/train_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "services/common/file_util.h"

namespace weft::cli {
namespace {

using ::testing::HasSubstr;

std::string Golden(const std::string& name) {
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  return ReadFile((source == nullptr ? "." : std::string(source)) + "/tests/golden/" + name)
      .value();
}

RunConfig SmallConfig() {
  RunConfig config;
  config.checkpoint_path = "model/toy";
  config.seed = 7;
  config.num_epochs = 2;
  return config;
}

// Two epochs of 30,000 edges, of which the first held some out.
TrainReport SmallReport(const RunConfig& config) {
  TrainReport report;
  report.config = &config;
  report.threads = 2;
  report.progress.num_epochs = 2;
  report.progress.position.epoch = 2;
  report.progress.done = true;
  report.checkpoint_version = 2;
  EpochSummary epoch;
  epoch.trained_edges = 30'000;
  epoch.train_seconds = 0.25;
  epoch.train = {30'000,
                 {{"loss", 0.75}, {"reg", 0}, {"violators_lhs", 2.5}, {"violators_rhs", 3}}};
  epoch.held_out_edges = 100;
  epoch.eval_before = Stats{100, {{"loss", 2}, {"mrr", 0.25}}};
  epoch.eval_after = Stats{100, {{"loss", 1}, {"mrr", 0.5}}};
  report.epochs.push_back(epoch);
  epoch.epoch = 1;
  epoch.train.metrics["loss"] = 0.5;
  epoch.held_out_edges = 0;
  epoch.eval_before.reset();
  epoch.eval_after.reset();
  report.epochs.push_back(epoch);
  report.summary.trained_edges = 60'000;
  report.summary.train_seconds = 0.5;
  report.summary.edges_per_second = 120'000;
  report.seconds = 0.75;
  report.peak_memory_bytes = int64_t{100} << 20;
  return report;
}

TEST(TrainReportTest, JsonIsTheGoldenFile) {
  const RunConfig config = SmallConfig();
  EXPECT_EQ(ReportToJson(SmallReport(config)), Golden("train_report.json"));
}

TEST(TrainReportTest, AnEpochIsALine) {
  const RunConfig config = SmallConfig();
  const TrainReport report = SmallReport(config);
  EXPECT_EQ(EpochLine(report.epochs[0], 2),
            "epoch 1/2: 30,000 edges, loss 0.75, 120 k edges/s; held-out mrr 0.25 -> 0.5");
  EXPECT_EQ(EpochLine(report.epochs[1], 2), "epoch 2/2: 30,000 edges, loss 0.5, 120 k edges/s");
}

TEST(TrainReportTest, AnEpochWithoutEdgesHasNeitherLossNorSpeed) {
  EXPECT_EQ(EpochLine(EpochSummary{}, 3), "epoch 1/3: 0 edges");
}

TEST(TrainReportTest, HeldOutEdgesWithoutNegativesShowTheirLoss) {
  EpochSummary epoch;
  epoch.eval_before = Stats{10, {{"loss", 2}}};
  epoch.eval_after = Stats{10, {{"loss", 1}}};
  EXPECT_EQ(EpochLine(epoch, 1), "epoch 1/1: 0 edges; held-out loss 2 -> 1");
}

TEST(TrainReportTest, ABucketIsALine) {
  BucketStats stats;
  stats.bucket = {0, 1};
  stats.trained_edges = 1000;
  stats.train_seconds = 0.5;
  stats.train = {1000, {{"loss", 0.25}}};
  EXPECT_EQ(BucketLine(stats), "bucket (0, 1): 1,000 edges, loss 0.25, 2 k edges/s");
}

TEST(TrainReportTest, TheLastLinesSayWhatIsThere) {
  const RunConfig config = SmallConfig();
  EXPECT_EQ(LastLines(SmallReport(config), "run.json"),
            "trained 60,000 edges in 0.5 s, 120 k edges/s, peak memory 100 MB\n"
            "complete (2/2 epochs): version 2 in model/toy\n");
}

TEST(TrainReportTest, AStoppedRunSaysHowToGoOn) {
  const RunConfig config = SmallConfig();
  TrainReport report = SmallReport(config);
  report.progress.done = false;
  report.progress.position.epoch = 1;
  report.progress.buckets = 16;
  report.progress.buckets_done = 5;
  report.checkpoint_version = 1;
  EXPECT_THAT(LastLines(report, "run.json"),
              HasSubstr("stopped in epoch 2/2; kept: version 1 in model/toy, and 5 of 16 buckets "
                        "of the next\n`weft train run.json` goes on from there\n"));
  report.checkpoint_version = 0;
  report.progress.buckets = 1;
  EXPECT_THAT(LastLines(report, "run.json"),
              HasSubstr("kept: no version in model/toy yet\n`weft train run.json`"));
}

TEST(TrainReportTest, EarlyStoppingNamesTheBestVersion) {
  RunConfig config = SmallConfig();
  config.num_epochs = 50;
  config.early_stopping = RunConfig::EarlyStopping{EarlyStoppingMetric::kMrr, 3};
  TrainReport report = SmallReport(config);
  report.progress.num_epochs = 50;
  report.progress.position.epoch = 5;
  report.progress.stopped_early = true;
  report.progress.early_stopping.best_version = 2;
  report.checkpoint_version = 5;
  EXPECT_THAT(LastLines(report, "run.json"),
              HasSubstr("stopped early after 5 of 50 epochs: no better value in 3; best: version "
                        "2; version 5 in model/toy\n"));
}

}  // namespace
}  // namespace weft::cli
