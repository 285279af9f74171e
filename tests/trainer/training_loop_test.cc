#include "services/trainer/training_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "services/common/random.h"
#include "services/common/status_macros.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/training_fakes.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::CountingStepFactory;
using ::testing::ElementsAre;
using testing::FakeLockClient;
using testing::FakeParamClient;
using testing::FakePartitionClient;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

constexpr int64_t kEntities = 20;  // a partition
constexpr int kDimension = 4;

// One entity type in `partitions` partitions, one dynamic relation model, edges in every bucket.
class TrainingLoopTest : public ::testing::Test {
 protected:
  void SetUpRun(int partitions, int64_t edges_per_bucket = 50, double eval_fraction = 0) {
    RunConfig& config = task_.config;
    config.entities = {{"user", partitions, false, {}}};
    config.relations = {{.name = "knows"}};
    config.dynamic_relations = true;
    config.dimension = kDimension;
    config.init_scale = 0;  // the counting step counts from zero
    config.edge_paths = {dir_.path()};
    config.batch_size = 7;
    config.num_batch_negs = 7;
    config.eval_fraction = eval_fraction;
    config.eval_num_batch_negs = 7;
    task_.seed = 3;
    task_.entity_counts = {std::vector<int64_t>(partitions, kEntities)};
    auto spec = MakeModelSpec(config, 2);
    ASSERT_THAT(spec, IsOk());
    task_.spec = *std::move(spec);
    RandomStream random(1, RandomUse::kTest);
    for (PartitionId l = 0; l < partitions; ++l) {
      for (PartitionId r = 0; r < partitions; ++r) {
        WriteBucket({l, r}, edges_per_bucket, &random);
      }
    }
  }

  void WriteBucket(Bucket bucket, int64_t count, RandomStream* random) {
    EdgeList edges;
    for (int64_t i = 0; i < count; ++i) {
      edges.lhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rhs.push_back(static_cast<EntityOffset>(random->Below(kEntities)));
      edges.rel.push_back(static_cast<RelationTypeId>(random->Below(2)));
      ++expected_[{0, bucket.lhs}][2 * edges.lhs.back()];
      ++expected_[{0, bucket.rhs}][2 * edges.rhs.back() + 1];
    }
    auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir_.path(), bucket), false);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Append(edges), IsOk());
    ASSERT_THAT((*writer)->Finish(), IsOk());
    lock_options_.edges[bucket] = count;
  }

  absl::StatusOr<TrainingSummary> Train(int threads = 2) {
    if (lock_ == nullptr) MakeLock();
    auto live = MakeSharedState(task_, steps_);
    WEFT_RETURN_IF_ERROR(live.status());
    live_ = *std::move(live);
    TrainingLoop::Options options;
    options.num_threads = threads;
    options.pipeline = pipeline_options_;
    options.acquire_wait = acquire_wait_;
    TrainingLoop loop(task_, options, {lock_.get(), &params_, &partitions_, &steps_, observer_},
                      &live_);
    return loop.Run(stop_);
  }

  // Begins a run.
  void MakeLock() {
    partitions_.Clear();
    lock_ = std::make_unique<FakeLockClient>(task_, lock_options_);
    lock_->partitions = &partitions_;
  }

  // Every entity was counted `passes` times for each of its edges.
  void ExpectEveryEdgeTrained(int passes) {
    const auto partitions = static_cast<PartitionId>(task_.entity_counts[0].size());
    for (PartitionId p = 0; p < partitions; ++p) {
      EmbeddingPartition table;
      if (partitions == 1) {
        table = live_.unpartitioned[0].Clone();
      } else {
        auto stored = partitions_.Get({0, p}, lock_->current({0, p}));
        ASSERT_TRUE(stored.has_value());
        table = *std::move(stored);
      }
      for (int64_t i = 0; i < kEntities; ++i) {
        for (int side = 0; side < 2; ++side) {
          const PartitionKey key{0, p};
          EXPECT_EQ(table.embeddings.row(i)[side],
                    passes * expected_[key][static_cast<EntityOffset>(2 * i + side)])
              << "partition " << p << " entity " << i << " side " << side;
        }
      }
    }
  }

  TempDir dir_;
  TrainingTask task_;
  FakeLockClient::Options lock_options_;
  BucketPipeline::Options pipeline_options_;
  absl::Duration acquire_wait_ = absl::Seconds(10);
  FakePartitionClient partitions_;
  FakeParamClient params_{task_};
  CountingStepFactory steps_;
  std::unique_ptr<FakeLockClient> lock_;
  TrainingObserver* observer_ = nullptr;
  SharedState live_;
  std::atomic<bool> stop_ = false;
  std::map<PartitionKey, std::map<EntityOffset, int>> expected_;  // [2 offset + side]
};

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
          pipeline_options_ = {hint, background, resident};
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
    const std::set<std::thread::id> first(threads.begin(), threads.begin() + 31);
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

TEST_F(TrainingLoopTest, EdgesThatChangedSinceTheRunBeganAreRefused) {
  SetUpRun(1);
  lock_options_.edges[{0, 0}] = 51;

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kDataLoss,
                                AllOf(HasSubstr("has 50 edges"), HasSubstr("had 51"))));
  ASSERT_EQ(lock_->failures.size(), 1u);
}

TEST_F(TrainingLoopTest, NonFiniteStopsTheRunWithBucketBatchAndRelationNamed) {
  SetUpRun(2);
  std::atomic<int> batches = 0;
  steps_.hook = [&](const EdgeBatch&) -> absl::Status {
    // A bucket has 8 batches: batch 3 of the second one.
    if (batches++ == 11) return absl::OutOfRangeError("relation knows: a score is not finite");
    return absl::OkStatus();
  };

  EXPECT_THAT(Train(/*threads=*/1),
              StatusIs(absl::StatusCode::kOutOfRange,
                       "bucket (0, 1), batch 3: relation knows: a score is not finite"));

  ASSERT_EQ(lock_->failures.size(), 1u);
  EXPECT_EQ(lock_->failures[0].bucket, (Bucket{0, 1}));
  EXPECT_THAT(lock_->failures[0].reason, HasSubstr("batch 3"));
  // What was finished before is kept: partition 0 has the first bucket, partition 1 nothing.
  ASSERT_EQ(lock_->released.size(), 1u);
  EXPECT_NE(lock_->current({0, 0}), kInitialToken);
  EXPECT_EQ(lock_->current({0, 1}), kInitialToken);
}

// The counting step does not look at what it trains, as no score looks at the last update.
TEST_F(TrainingLoopTest, WhatIsNotFiniteIsNotStored) {
  SetUpRun(2);
  task_.config.init_scale = std::numeric_limits<float>::max();  // some of it infinite

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kOutOfRange,
                                AllOf(HasSubstr("bucket (0, 0): partition 0 of user: row "),
                                      HasSubstr("became "), HasSubstr("inf"))));

  ASSERT_EQ(lock_->failures.size(), 1u);
  EXPECT_EQ(lock_->failures[0].bucket, (Bucket{0, 0}));
  EXPECT_TRUE(lock_->released.empty());
  EXPECT_EQ(lock_->current({0, 0}), kInitialToken);
}

TEST_F(TrainingLoopTest, SharedStateThatIsNotFiniteIsNotFlushed) {
  SetUpRun(1);
  task_.config.init_scale = std::numeric_limits<float>::max();

  EXPECT_THAT(Train(),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("bucket (0, 0): user: row ")));

  EXPECT_EQ(lock_->failures.size(), 1u);
  EXPECT_EQ(params_.flushes, 0);
}

TEST_F(TrainingLoopTest, StopAbandonsTheGrantInTrainingAndKeepsWhatIsFinished) {
  SetUpRun(2);
  std::atomic<int> batches = 0;
  steps_.hook = [&](const EdgeBatch&) {
    if (batches++ == 11) stop_ = true;
    return absl::OkStatus();
  };

  const auto summary = Train(/*threads=*/1);

  ASSERT_THAT(summary, IsOk());
  EXPECT_TRUE(summary->stopped);
  EXPECT_EQ(batches, 12);
  EXPECT_EQ(lock_->released.size(), 1u);
  EXPECT_EQ(lock_->abandoned, 1);
  EXPECT_TRUE(lock_->left);
  EXPECT_EQ(summary->trained_edges, 50);

  // The same clients go on where it stopped.
  stop_ = false;
  steps_.hook = nullptr;
  ASSERT_THAT(Train(), IsOk());
  ExpectEveryEdgeTrained(1);
}

TEST_F(TrainingLoopTest, AnEndedSessionForgetsItsCopiesAndStartsAnew) {
  SetUpRun(3);
  lock_options_.passes = 2;
  MakeLock();
  lock_->release_aborts = 2;

  ASSERT_THAT(Train(), IsOk());

  EXPECT_GE(params_.joins, 3);
  ExpectEveryEdgeTrained(2);
}

// Otherwise the lock server, which knows nothing of it, would wait for the grant for ever.
TEST_F(TrainingLoopTest, ASessionThatAnotherServerRefusesIsLeft) {
  SetUpRun(3);
  lock_options_.passes = 2;
  params_.flush_aborts = 2;
  MakeLock();

  ASSERT_THAT(Train(), IsOk());

  EXPECT_GE(params_.joins, 3);
  ExpectEveryEdgeTrained(2);
}

TEST_F(TrainingLoopTest, SessionsThatNeverFinishAnythingEndTheRun) {
  SetUpRun(2);
  MakeLock();
  lock_->error = absl::AbortedError("the session has ended");
  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(TrainingLoopTest, PartitionsThatTheStoreLostAreStoredAgain) {
  SetUpRun(2);
  MakeLock();
  lock_->release_store_agains = 2;

  ASSERT_THAT(Train(), IsOk());

  ExpectEveryEdgeTrained(1);
}

TEST_F(TrainingLoopTest, AFailedStoreEndsTheRunWithThePartitionNamed) {
  SetUpRun(2);
  partitions_.store_failures = 1;

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("cannot store partition 0 of user: disk full")));
  EXPECT_EQ(lock_->released.size(), 0u);
}

TEST_F(TrainingLoopTest, AFailedStoreIsToldThoughThereIsNothingElseToDo) {
  SetUpRun(1);
  lock_options_.passes = 2;
  acquire_wait_ = absl::Hours(1);
  params_.flush_error = absl::ResourceExhaustedError("disk full");

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

TEST_F(TrainingLoopTest, ALostVersionIsRefusedNotReinitialised) {
  SetUpRun(2);
  MakeLock();
  lock_->SetCurrent({0, 1}, 77);  // committed once, but its file is gone

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr("partition 1 of user: no such version")));
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

TEST_F(TrainingLoopTest, ABadIdStopsTheRunBeforeAnyBatchOfItsBucket) {
  SetUpRun(1);
  EdgeList edges;
  edges.lhs = {0, static_cast<EntityOffset>(kEntities)};
  edges.rhs = {0, 0};
  edges.rel = {0, 0};
  auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir_.path(), {0, 0}), false);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Append(edges), IsOk());
  ASSERT_THAT((*writer)->Finish(), IsOk());
  std::atomic<int> batches = 0;
  steps_.hook = [&](const EdgeBatch&) {
    ++batches;
    return absl::OkStatus();
  };

  EXPECT_THAT(Train(), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("edges_0_0.h5"), HasSubstr("lhs[1] is 20"))));
  EXPECT_EQ(batches, 0);
}

class RecordingObserver : public TrainingObserver {
 public:
  void OnBucketTrained(const PassPosition& position, const BucketStats& stats,
                       int64_t remaining) override {
    buckets.push_back(stats.bucket);
  }
  std::vector<Bucket> buckets;
};

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
