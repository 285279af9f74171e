#include "services/lock_server/run_coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tests/lock_server/coordinator_fixture.h"
#include "tests/lock_server/coordinator_run.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::FailingRunStore;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakePlan;
using testing::MakeState;
using testing::ReleaseOf;
using ::testing::SizeIs;
using testing::StartRun;
using testing::StatusIs;
using Source = GrantedPartition::Source;
using testing::OffDiagonalPlan;
using testing::TestRun;

TEST(RunCoordinatorTest, AGrantOfNeverTrainedPartitionsSaysInitialise) {
  TestRun run(2);

  const Grant grant = run.MustAcquire();

  EXPECT_EQ(grant.token, (Token{1} << 40) + 1);
  EXPECT_EQ(grant.position, PassPosition{});
  ASSERT_THAT(grant.buckets, SizeIs(1));
  EXPECT_EQ(grant.buckets[0].expected_edges, 10);
  for (const GrantedPartition& partition : grant.partitions) {
    EXPECT_EQ(partition.source, Source::kInitialise);
    EXPECT_EQ(partition.base, kInitialToken);
    EXPECT_FALSE(partition.dirty);
  }
}

TEST(RunCoordinatorTest, AReleasedVersionIsReadByTheNextGrant) {
  TestRun run(2, OffDiagonalPlan());
  const Grant first = run.MustAcquire();
  ASSERT_THAT(run.Release(first), IsOk());

  const Grant second = run.MustAcquire();

  ASSERT_THAT(second.partitions, SizeIs(2));
  for (const GrantedPartition& partition : second.partitions) {
    EXPECT_EQ(partition.source, Source::kRead);
    EXPECT_EQ(partition.base, first.token);
    EXPECT_TRUE(partition.dirty);
  }
}

TEST(RunCoordinatorTest, WhatTheSessionHasAtTheCurrentVersionIsKept) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  ASSERT_THAT(run.Release(first), IsOk());

  const Grant second = run.MustAcquire({{first.partitions[0].key, first.token}});

  EXPECT_EQ(second.partitions[0].source, Source::kKeep);
}

TEST(RunCoordinatorTest, ACopyOfAnOldVersionIsReadAnew) {
  TestRun run(2, OffDiagonalPlan());
  const Grant first = run.MustAcquire();
  ASSERT_THAT(run.Release(first), IsOk());

  const Grant second = run.MustAcquire({{first.partitions[0].key, kInitialToken}});

  EXPECT_EQ(second.partitions[0].source, Source::kRead);
}

TEST(RunCoordinatorTest, TheSameNumberGetsTheSameGrant) {
  TestRun run(2);
  const AcquireRequest request = {5, {}, absl::ZeroDuration()};

  const auto first = run.coordinator->Acquire(run.session, request);
  const auto again = run.coordinator->Acquire(run.session, request);

  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->grant->token, first->grant->token);
  EXPECT_EQ(again->grant->buckets[0].bucket, first->grant->buckets[0].bucket);
}

TEST(RunCoordinatorTest, NumbersOnlyGrow) {
  TestRun run(2);
  ASSERT_THAT(run.coordinator->Acquire(run.session, {5, {}, absl::ZeroDuration()}), IsOk());

  EXPECT_THAT(run.coordinator->Acquire(run.session, {4, {}, absl::ZeroDuration()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("numbers only grow")));
}

TEST(RunCoordinatorTest, ASessionHasAtMostTwoGrants) {
  TestRun run(8);
  run.MustAcquire();
  run.MustAcquire();

  const auto third = run.Acquire();

  ASSERT_THAT(third, IsOk());
  EXPECT_FALSE(third->grant.has_value());
  EXPECT_EQ(third->remaining, 64);
}

TEST(RunCoordinatorTest, AReleaseIsRepeatedWithTheSameAnswer) {
  TestRun run(1);
  const Grant grant = run.MustAcquire();
  const auto first = run.Release(grant);

  const auto again = run.Release(grant);

  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->pass_done, first->pass_done);
  EXPECT_THAT(run.coordinator->complete_pass()->buckets, SizeIs(1));
}

TEST(RunCoordinatorTest, AForeignReleaseChangesNothing) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();
  const RunCoordinator::SessionId other = run.coordinator->Register();

  EXPECT_THAT(run.coordinator->Release(other, ReleaseOf(grant)),
              StatusIs(absl::StatusCode::kAborted));

  EXPECT_THAT(run.Release(grant), IsOk());
}

TEST(RunCoordinatorTest, ALateReleaseOfAnotherLifeIsAborted) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();

  run.Restart();

  EXPECT_THAT(run.Release(grant), StatusIs(absl::StatusCode::kAborted));
}

TEST(RunCoordinatorTest, AGrantMayStartFromTheSessionsOwnUnreleasedVersion) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  const PartitionKey key = first.partitions[0].key;

  const Grant second = run.MustAcquire({{key, first.token}});

  EXPECT_EQ(second.partitions[0].key, key);
  EXPECT_EQ(second.partitions[0].base, first.token);
  EXPECT_EQ(second.partitions[0].source, Source::kKeep);
  EXPECT_THAT(run.Release(first), IsOk());
  EXPECT_THAT(run.Release(second), IsOk());
}

TEST(RunCoordinatorTest, AReleaseBeforeItsPredecessorsIsRefusedAndItsBucketsAreFree) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  const Grant second = run.MustAcquire({{first.partitions[0].key, first.token}});

  EXPECT_THAT(run.Release(second),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("started from version")));

  ASSERT_THAT(run.Release(first), IsOk());
  const Grant third = run.MustAcquire({{first.partitions[0].key, first.token}});
  EXPECT_EQ(third.buckets[0].bucket, second.buckets[0].bucket);
}

TEST(RunCoordinatorTest, AbandonVoidsWhatStartsFromTheAbandonedVersion) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  const Grant second = run.MustAcquire({{first.partitions[0].key, first.token}});

  ASSERT_THAT(run.coordinator->Abandon(run.session, first.token), IsOk());

  EXPECT_THAT(run.Release(second), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(run.coordinator->progress().buckets_done, 0);
}

TEST(RunCoordinatorTest, LeaveGivesAllGrantsBack) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();

  ASSERT_THAT(run.coordinator->Leave(run.session), IsOk());

  EXPECT_THAT(run.Acquire(), StatusIs(absl::StatusCode::kAborted));
  run.session = run.coordinator->Register();
  EXPECT_EQ(run.MustAcquire().buckets[0].bucket, grant.buckets[0].bucket);
}

TEST(RunCoordinatorTest, APartitionThatIsNotStoredCanBeStoredAndReleasedAgain) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();
  ReleaseRequest release = ReleaseOf(grant);
  release.stored.clear();

  EXPECT_THAT(run.coordinator->Release(run.session, release),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has not been stored")));

  EXPECT_THAT(run.Release(grant), IsOk());
}

TEST(RunCoordinatorTest, AReportOfOtherBucketsIsRefused) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();
  ReleaseRequest release = ReleaseOf(grant);
  release.buckets[0].bucket = {1, 1};
  ASSERT_NE(grant.buckets[0].bucket, (Bucket{1, 1}));

  EXPECT_THAT(run.coordinator->Release(run.session, release),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RunCoordinatorTest, EdgesThatDoNotAddUpFailTheRun) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();
  ReleaseRequest release = ReleaseOf(grant);
  release.buckets[0].trained_edges = 9;

  EXPECT_THAT(run.coordinator->Release(run.session, release),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("trained 9 and held out 0")));

  EXPECT_THAT(run.Acquire(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("the run has failed in bucket (0, ")));
}

TEST(RunCoordinatorTest, HeldOutEdgesCountToo) {
  TestRun run(2);
  const Grant grant = run.MustAcquire();
  ReleaseRequest release = ReleaseOf(grant);
  release.buckets[0].trained_edges = 7;
  release.buckets[0].held_out_edges = 3;

  EXPECT_THAT(run.coordinator->Release(run.session, release), IsOk());
}

TEST(RunCoordinatorTest, AFailureStopsTheRunAndKeepsWhatWasReleased) {
  TestRun run(2);
  ASSERT_THAT(run.Release(run.MustAcquire()), IsOk());
  const Grant grant = run.MustAcquire();

  ASSERT_THAT(run.coordinator->ReportFailure(run.session, grant.token,
                                             {grant.buckets[0].bucket, "batch 3: NaN"}),
              IsOk());

  EXPECT_THAT(run.Acquire(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("batch 3: NaN")));
  EXPECT_EQ((*run.store.Load())->failure->reason, "batch 3: NaN");
  run.Restart();
  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);
  EXPECT_THAT(run.Acquire(), IsOk());
}

TEST(RunCoordinatorTest, ReleasedBucketsSurviveARestartAndTokensDoNotRepeat) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  ASSERT_THAT(run.Release(first), IsOk());

  run.Restart();

  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);
  const Grant next = run.MustAcquire();
  EXPECT_EQ(next.token >> 40, 2u);
  EXPECT_NE(next.buckets[0].bucket, first.buckets[0].bucket);
}

TEST(RunCoordinatorTest, AGrantTakesAsManyBucketsAsFitIntoCommitSeconds) {
  RunPlan plan = MakePlan(3);
  plan.commit_seconds = 2.5;  // every bucket of 10 edges takes a second
  TestRun run(3, plan);
  const Grant first = run.MustAcquire();
  EXPECT_THAT(first.buckets, SizeIs(1));  // nothing is known about the speed
  ASSERT_THAT(run.Release(first), IsOk());

  EXPECT_THAT(run.MustAcquire({{first.partitions[0].key, first.token}}).buckets, SizeIs(2));
}

TEST(RunCoordinatorTest, TheHintNamesWhatWillBeNeededNext) {
  TestRun run(3);
  const Grant first = run.MustAcquire();
  ASSERT_THAT(first.hint, SizeIs(1));

  ASSERT_THAT(run.Release(first), IsOk());
  const Grant second = run.MustAcquire({{first.partitions[0].key, first.token}});

  bool used = false;
  for (const GrantedPartition& partition : second.partitions) {
    used = used || partition.key == first.hint[0].key;
  }
  EXPECT_TRUE(used);
}

TEST(RunCoordinatorTest, TheKeepListHasCurrentCommittedAndLiveVersions) {
  TestRun run(2);
  run.FinishPass();
  const std::vector<PartitionVersion> committed = run.coordinator->complete_pass().has_value()
                                                      ? std::vector<PartitionVersion>()
                                                      : run.coordinator->keep_list().keep;
  ASSERT_THAT(committed, SizeIs(2));
  const Grant released = run.MustAcquire();
  ASSERT_THAT(run.Release(released), IsOk());
  const Grant live = run.MustAcquire();

  const KeepList list = run.coordinator->keep_list();

  EXPECT_EQ(list.high_water, live.token);
  const std::set<PartitionVersion> keep(list.keep.begin(), list.keep.end());
  for (const PartitionVersion& version : committed) EXPECT_TRUE(keep.contains(version));
  for (const GrantedPartition& partition : released.partitions) {
    EXPECT_TRUE(keep.contains({partition.key, released.token}));
  }
  for (const GrantedPartition& partition : live.partitions) {
    EXPECT_TRUE(keep.contains({partition.key, live.token}));
  }
}

TEST(RunCoordinatorTest, ASupersededVersionIsNotKept) {
  TestRun run(2);
  const Grant first = run.MustAcquire();
  ASSERT_THAT(run.Release(first), IsOk());
  const Grant second = run.MustAcquire({{first.partitions[0].key, first.token}});
  ASSERT_THAT(run.Release(second), IsOk());

  for (const PartitionVersion& version : run.coordinator->keep_list().keep) {
    EXPECT_NE(version, (PartitionVersion{first.partitions[0].key, first.token}));
  }
}

TEST(RunCoordinatorTest, NothingIsAcknowledgedThatIsNotStored) {
  FailingRunStore store(1);  // the start is written, nothing after it
  auto coordinator = StartRun(MakePlan(2), MakeState(2), &store);
  const RunCoordinator::SessionId session = coordinator->Register();
  const Grant grant = *coordinator->Acquire(session, {1, {}, absl::ZeroDuration()})->grant;

  EXPECT_THAT(coordinator->Release(session, ReleaseOf(grant)),
              StatusIs(absl::StatusCode::kResourceExhausted));

  EXPECT_EQ(coordinator->progress().buckets_done, 0);
  EXPECT_THAT((*store.Load())->done, IsEmpty());
}

// One trainer with more room than two partitions, which lets go of what it is told to.
int LoadsInAPass(int partitions, int resident) {
  RunPlan plan = MakePlan(partitions);
  plan.resident_partitions = resident;
  plan.bucket_order = BucketOrder::kInsideOut;
  plan.commit_seconds = 0;
  TestRun run(partitions, plan);
  std::map<PartitionKey, Token> memory;
  int loads = 0;
  while (!run.coordinator->complete_pass().has_value()) {
    std::vector<PartitionVersion> copies;
    for (const auto& [key, token] : memory) copies.push_back({key, token});
    const Grant grant = run.MustAcquire(copies);
    size_t missing = 0;
    for (const GrantedPartition& partition : grant.partitions) {
      missing += partition.source == Source::kKeep ? 0 : 1;
    }
    loads += static_cast<int>(missing);
    for (const PartitionKey& key : grant.let_go) {
      if (memory.size() + missing <= static_cast<size_t>(resident)) break;
      memory.erase(key);
    }
    for (const GrantedPartition& partition : grant.partitions) {
      memory[partition.key] = grant.token;
    }
    WEFT_CHECK(memory.size() <= static_cast<size_t>(resident));
    WEFT_CHECK(run.Release(grant).ok());
  }
  return loads;
}

TEST(RunCoordinatorTest, WithMoreRoomATrainerLoadsAboutAsLittleAsIsPossible) {
  for (const auto& [p, c] : {std::pair(8, 3), {16, 4}, {16, 8}, {32, 8}}) {
    SCOPED_TRACE(::testing::Message() << p << " of which " << c);
    const double bound = (p * (p - 1) / 2.0 - c * (c - 1) / 2.0) / (c - 1);

    EXPECT_LE(LoadsInAPass(p, c) - c, 1.25 * bound + c);
  }
}

}  // namespace
}  // namespace weft
