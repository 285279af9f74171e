// What a training loop does when something is wrong: with its input, its values, its servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "graph/edge_bucket_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/training_fakes.h"
#include "tests/trainer/training_loop_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::kEntities;
using testing::StatusIs;
using testing::TrainingLoopTest;

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
  lock_->release_store_agains = 5;

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

}  // namespace
}  // namespace weft
