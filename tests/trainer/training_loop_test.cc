#include "services/trainer/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/training_fakes.h"
#include "tests/trainer/training_loop_fixture.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;
using testing::kEntities;
using testing::TrainingLoopTest;

TEST_F(TrainingLoopTest, OnePartitionTrainsEveryEdgeInEveryPass) {
  SetUpRun(1);
  lock_options_.passes = 3;

  const auto summary = Train();

  ASSERT_THAT(summary, IsOk());
  EXPECT_FALSE(summary->stopped);
  EXPECT_EQ(summary->trained_edges, 150);
  ASSERT_EQ(summary->epochs.size(), 3u);
  EXPECT_DOUBLE_EQ(summary->epochs[2].train.metrics.at("loss"), 2);
  ExpectEveryEdgeTrained(3);
  EXPECT_TRUE(lock_->left);
  EXPECT_EQ(params_.flushes, 3);
}

// Partitions move between grants while earlier ones are being stored: counts stay exact.
TEST_F(TrainingLoopTest, ManyPartitionsTrainEveryEdgeInEveryPassWhateverThePipeline) {
  SetUpRun(4);
  lock_options_.passes = 2;
  for (const bool background : {true, false}) {
    for (const bool group : {true, false}) {
      for (const bool hint : {true, false}) {
        for (const int resident : {2, 3, 100}) {
          SCOPED_TRACE(absl::StrCat("background ", background, " group ", group, " hint ", hint,
                                    " resident ", resident));
          pipeline_options_.prefetch = hint;
          pipeline_options_.background_store = background;
          pipeline_options_.resident_partitions = resident;
          lock_options_.group = group;
          lock_options_.hint = hint;
          MakeLock();
          const auto summary = Train();
          ASSERT_THAT(summary, IsOk());
          EXPECT_EQ(summary->trained_edges, 2 * 16 * 50);
          ExpectEveryEdgeTrained(2);
        }
      }
    }
  }
}

TEST_F(TrainingLoopTest, StoringGoesOnWhileTheNextGrantIsTrained) {
  SetUpRun(2);
  // The first store waits until a batch of the second grant is being trained.
  std::atomic<int> stores = 0;
  std::atomic<int64_t> edges = 0;
  partitions_.before_store = [&] {
    if (stores++ == 0) {
      while (edges <= 50) std::this_thread::yield();
    }
  };
  steps_.hook = [&](const EdgeBatch& batch) {
    edges += batch.size();
    return absl::OkStatus();
  };

  ASSERT_THAT(Train(), IsOk());

  ExpectEveryEdgeTrained(1);
}

TEST_F(TrainingLoopTest, WithoutBackgroundStoreABucketIsStoredBeforeTheNextIsTrained) {
  SetUpRun(2);
  pipeline_options_.background_store = false;
  std::atomic<int64_t> edges = 0;
  partitions_.before_store = [&] { EXPECT_EQ(edges % 50, 0); };
  steps_.hook = [&](const EdgeBatch& batch) {
    edges += batch.size();
    return absl::OkStatus();
  };

  ASSERT_THAT(Train(), IsOk());

  ExpectEveryEdgeTrained(1);
}

TEST_F(TrainingLoopTest, HintedPartitionsAreReadOnce) {
  SetUpRun(4);
  lock_options_.passes = 2;
  lock_options_.hint = true;
  MakeLock();
  ASSERT_THAT(Train(), IsOk());
  // Lexicographic order of 16 buckets: in the second pass at most one partition changes a bucket.
  EXPECT_LE(partitions_.reads(), 2 * 16);
  ExpectEveryEdgeTrained(2);
}

TEST_F(TrainingLoopTest, WhatIsNamedDoesNotDependOnTiming) {
  SetUpRun(4);
  lock_options_.passes = 2;
  lock_options_.hint = true;
  std::vector<std::vector<PartitionVersion>> first;
  for (int run = 0; run < 3; ++run) {
    MakeLock();
    // Stores of varying length.
    partitions_.before_store = [&, run] {
      for (int i = 0; i < run * 100; ++i) std::this_thread::yield();
    };
    ASSERT_THAT(Train(), IsOk());
    auto as_pairs = [](const auto& log) {
      std::vector<std::vector<std::pair<PartitionKey, Token>>> pairs;
      for (const auto& versions : log) {
        auto& to = pairs.emplace_back();
        for (const PartitionVersion& v : versions) to.emplace_back(v.key, v.token);
      }
      return pairs;
    };
    if (run == 0) {
      first = lock_->resident_log;
    } else {
      EXPECT_EQ(as_pairs(lock_->resident_log), as_pairs(first));
    }
  }
}

TEST_F(TrainingLoopTest, OneThreadTrainsTheFirstBatchesOfWhatIsFresh) {
  for (const int partitions : {1, 2}) {
    SetUpRun(partitions, 300);
    MakeLock();
    Mutex mu;
    std::vector<std::thread::id> threads;
    steps_.hook = [&](const EdgeBatch&) {
      MutexLock lock(&mu);
      threads.push_back(std::this_thread::get_id());
      return absl::OkStatus();
    };

    ASSERT_THAT(Train(4), IsOk());

    ASSERT_GE(threads.size(), 40u);
    const std::set<std::thread::id> first(threads.begin(), threads.begin() + 7);
    EXPECT_EQ(first.size(), 1u) << partitions;
    lock_ = nullptr;
    expected_.clear();
  }
}

TEST_F(TrainingLoopTest, HeldOutEdgesAreEvaluatedAndNeverTrained) {
  SetUpRun(1, 100, 0.25);

  const auto summary = Train();

  ASSERT_THAT(summary, IsOk());
  ASSERT_EQ(lock_->released.size(), 1u);
  const BucketStats& stats = lock_->released[0];
  EXPECT_EQ(stats.trained_edges, 75);
  EXPECT_EQ(stats.held_out_edges, 25);
  ASSERT_TRUE(stats.eval_before.has_value());
  ASSERT_TRUE(stats.eval_after.has_value());
  EXPECT_EQ(stats.eval_before->count, 25);
  // The fake's scores: rank 1 on the left, 3 on the right.
  EXPECT_DOUBLE_EQ(stats.eval_before->metrics.at("pos_rank"), 2);
  EXPECT_DOUBLE_EQ(stats.eval_before->metrics.at("loss"), 1);
  float counted = 0;
  for (int64_t i = 0; i < kEntities; ++i) counted += live_.unpartitioned[0].embeddings.row(i)[0];
  EXPECT_EQ(counted, 75);
  EXPECT_EQ(summary->epochs[0].held_out_edges, 25);
}

TEST_F(TrainingLoopTest, EdgeChunksTogetherTrainEveryEdgeOnceAnEpoch) {
  for (const int partitions : {1, 2}) {
    expected_.clear();
    SetUpRun(partitions, 7);
    lock_options_.passes = 20;
    lock_options_.num_edge_chunks = 10;  // more chunks than edges
    task_.config.num_edge_chunks = 10;
    task_.config.num_epochs = 2;
    MakeLock();

    const auto summary = Train();

    ASSERT_THAT(summary, IsOk());
    ASSERT_EQ(summary->epochs.size(), 2u);
    EXPECT_EQ(summary->epochs[1].trained_edges, 7 * partitions * partitions);
    ExpectEveryEdgeTrained(2);
  }
}

TEST_F(TrainingLoopTest, EmptyAndMissingBucketsAreTrainedAsEmpty) {
  SetUpRun(2, 0);
  std::filesystem::remove(EdgeBucketPath(dir_.path(), {1, 1}));

  const auto summary = Train();

  ASSERT_THAT(summary, IsOk());
  EXPECT_EQ(summary->trained_edges, 0);
  EXPECT_EQ(lock_->released.size(), 4u);
}

TEST_F(TrainingLoopTest, NothingToDoIsDoneAtOnce) {
  SetUpRun(1);
  lock_options_.passes = 0;

  const auto summary = Train();

  ASSERT_THAT(summary, IsOk());
  EXPECT_EQ(summary->trained_edges, 0);
  EXPECT_THAT(summary->epochs, ::testing::IsEmpty());
}

class RecordingObserver : public TrainingObserver {
 public:
  void OnBucketTrained(const Grant&, const BucketStats& stats) override {
    buckets.push_back(stats.bucket);
  }
  std::vector<Bucket> buckets;
};

TEST_F(TrainingLoopTest, ThePhasesAreThePartsOfTheTime) {
  SetUpRun(2, 300, 0.1);
  const absl::Time start = absl::Now();

  const auto summary = Train();

  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  ASSERT_THAT(summary, IsOk());
  const PhaseSeconds& phases = summary->phases;
  EXPECT_GE(phases.training, summary->train_seconds);
  for (const double phase : {phases.waiting, phases.loading, phases.evaluating, phases.finishing}) {
    EXPECT_GT(phase, 0);
  }
  EXPECT_LE(
      phases.waiting + phases.loading + phases.training + phases.evaluating + phases.finishing,
      seconds);
}

TEST_F(TrainingLoopTest, TheObserverSeesBucketsInTheOrderTrained) {
  SetUpRun(2);
  RecordingObserver observer;
  observer_ = &observer;

  ASSERT_THAT(Train(), IsOk());

  EXPECT_THAT(observer.buckets,
              ElementsAre(Bucket{0, 0}, Bucket{0, 1}, Bucket{1, 0}, Bucket{1, 1}));
}

}  // namespace
}  // namespace weft
