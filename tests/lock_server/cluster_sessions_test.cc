// Sessions, leases and grants in a cluster: who may train what, and what a restart keeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::PartitionServer;
using testing::StatusIs;

constexpr SessionId kAnna = 1001;
constexpr SessionId kBert = 1002;
const std::vector<Place> kDisk = {{11, 0}};  // at a durable store

// A run with one durable partition server.
struct DurableRun : ClusterRun {
  explicit DurableRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(11, 1)).ok());
    Register(kAnna);
  }
  explicit DurableRun(int partitions) : DurableRun(MakeClusterPlan(partitions)) {}
};

TEST(ClusterSessionsTest, NothingIsGrantedBeforeThereIsSomewhereToStoreIt) {
  ClusterRun run(MakeClusterPlan(2));
  run.Register(kAnna);
  ASSERT_FALSE(run.Acquire(kAnna, 1)->grant.has_value());

  ASSERT_THAT(run.Report(PartitionServer(11, 1)), IsOk());

  const Grant grant = run.MustAcquire(kAnna, 1);
  EXPECT_THAT(grant.store_at, ElementsAre(11));
}

TEST(ClusterSessionsTest, SessionsAndGrantsLiveOnAfterARestart) {
  DurableRun run(2);
  const Grant grant = run.MustAcquire(kAnna, 1);

  run.Restart();

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);
}

TEST(ClusterSessionsTest, TheSameNumberGetsTheSameGrantAfterARestart) {
  DurableRun run(2);
  const Grant first = run.MustAcquire(kAnna, 1);

  run.Restart();
  const Grant again = run.MustAcquire(kAnna, 1);

  EXPECT_EQ(again.token, first.token);
  ASSERT_EQ(again.buckets.size(), first.buckets.size());
  EXPECT_EQ(again.buckets[0].bucket, first.buckets[0].bucket);
  EXPECT_EQ(again.buckets[0].expected_edges, first.buckets[0].expected_edges);
  EXPECT_EQ(again.partitions.size(), first.partitions.size());
}

TEST(ClusterSessionsTest, AGrantWhoseAnswerWasNotSyncedNeverWas) {
  DurableRun run(2);
  const auto lost = run.coordinator->Acquire(kAnna, {1, {}, absl::ZeroDuration()});
  ASSERT_TRUE(lost->grant.has_value());

  run.Restart();
  const Grant grant = run.MustAcquire(kAnna, 1);

  EXPECT_NE(grant.token, lost->grant->token);
}

TEST(ClusterSessionsTest, AReleaseIsAnsweredAgainAfterARestart) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_TRUE(run.Release(kAnna, grant, kDisk)->pass_done);

  run.Restart();
  const auto again = run.Release(kAnna, grant, kDisk);

  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->pass_done);
  EXPECT_EQ(run.coordinator->progress().position.pass, 1);
}

TEST(ClusterSessionsTest, TheLast8AnswersAreRepeated) {
  DurableRun run(4);
  std::vector<Grant> grants;
  for (uint64_t i = 1; i <= 9; ++i) {
    grants.push_back(run.MustAcquire(kAnna, i));
    ASSERT_THAT(run.Release(kAnna, grants.back(), kDisk), IsOk());
  }

  EXPECT_THAT(run.Release(kAnna, grants[1], kDisk), IsOk());
  EXPECT_THAT(run.Release(kAnna, grants[0], kDisk), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(run.coordinator->progress().buckets_done, 9);
}

TEST(ClusterSessionsTest, ASilentSessionEndsAfterALeaseAndItsBucketIsGrantedAgain) {
  DurableRun run(1);
  const Grant lost = run.MustAcquire(kAnna, 1);
  run.Pass(absl::Seconds(20));
  run.Register(kBert);
  ASSERT_FALSE(run.Acquire(kBert, 1)->grant.has_value());

  run.Pass(absl::Seconds(11));
  ASSERT_THAT(run.coordinator->Heartbeat(kBert, {}, 0), IsOk());

  const Grant grant = run.MustAcquire(kBert, 1);
  EXPECT_EQ(grant.buckets[0].bucket, lost.buckets[0].bucket);
  EXPECT_THAT(run.Release(kAnna, lost, kDisk), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(run.Release(kBert, grant, kDisk), IsOk());
}

TEST(ClusterSessionsTest, HeartbeatsKeepASessionAlive) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  for (uint64_t i = 0; i < 10; ++i) {
    run.Pass(absl::Seconds(10));
    const auto ended = run.coordinator->Heartbeat(kAnna, {grant.token}, i);
    ASSERT_THAT(ended, IsOk());
    EXPECT_THAT(*ended, IsEmpty());
  }

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
}

TEST(ClusterSessionsTest, AnEndedSessionIsOverAfterARestartToo) {
  DurableRun run(1);
  const Grant lost = run.MustAcquire(kAnna, 1);
  run.Pass(absl::Seconds(31));
  run.Register(kBert);
  const Grant grant = run.MustAcquire(kBert, 1);

  run.Restart();

  EXPECT_THAT(run.Release(kAnna, lost, kDisk), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(run.Release(kBert, grant, kDisk), IsOk());
}

TEST(ClusterSessionsTest, ARestartGivesAFullLease) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  run.Pass(absl::Seconds(29));
  run.Restart();
  run.Pass(absl::Seconds(29));

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
}

TEST(ClusterSessionsTest, WhoeverCouldNotBeHeardIsNotSilent) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  run.Pass(absl::Seconds(1));

  run.clock.Advance(absl::Minutes(10));  // the lock server was stopped
  ASSERT_THAT(run.coordinator->Tick(), IsOk());

  EXPECT_THAT(run.coordinator->Heartbeat(kAnna, {grant.token}, 1), IsOk());
  run.Pass(absl::Seconds(31));
  EXPECT_THAT(run.coordinator->Heartbeat(kAnna, {grant.token}, 1),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(ClusterSessionsTest, ASessionWithoutProgressEnds) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  for (int i = 0; i < 61; ++i) {
    run.Pass(absl::Seconds(10));
    run.coordinator->Heartbeat(kAnna, {grant.token}, 7).IgnoreError();
  }

  EXPECT_THAT(run.coordinator->Heartbeat(kAnna, {grant.token}, 7),
              StatusIs(absl::StatusCode::kAborted));
}

TEST(ClusterSessionsTest, WhoHasNothingToDoNeedsNoProgress) {
  DurableRun run(1);
  for (int i = 0; i < 100; ++i) {
    run.Pass(absl::Seconds(10));
    ASSERT_THAT(run.coordinator->Heartbeat(kAnna, {}, 0), IsOk());
  }
}

TEST(ClusterSessionsTest, AGrantThatItsTrainerDoesNotKnowIsVoidedAfterALease) {
  DurableRun run(1);
  const Grant grant = run.MustAcquire(kAnna, 1);
  for (int i = 0; i < 7; ++i) {
    run.Pass(absl::Seconds(5));
    ASSERT_THAT(run.coordinator->Heartbeat(kAnna, {}, 0), IsOk());
  }

  EXPECT_THAT(run.Acquire(kAnna, 1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(*run.coordinator->Heartbeat(kAnna, {grant.token}, 0), ElementsAre(grant.token));
  run.Register(kBert);
  EXPECT_EQ(run.MustAcquire(kBert, 1).buckets[0].bucket, grant.buckets[0].bucket);
}

TEST(ClusterSessionsTest, ABucketThatKillsItsTrainersStopsTheRun) {
  RunPlan plan = MakeClusterPlan(1);
  plan.cluster->max_bucket_attempts = 3;
  DurableRun run(plan);
  for (SessionId session = 1; session <= 3; ++session) {
    run.Register(session);
    run.MustAcquire(session, 1);
    run.Pass(absl::Seconds(31));
  }

  run.Register(kBert);
  EXPECT_THAT(run.Acquire(kBert, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("bucket (0, 0)"), HasSubstr("granted 3 times"))));
  run.Restart();
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kFailed);
}

TEST(ClusterSessionsTest, AbandoningABucketIsNoFailedAttempt) {
  RunPlan plan = MakeClusterPlan(1);
  plan.cluster->max_bucket_attempts = 2;
  DurableRun run(plan);
  for (uint64_t number = 1; number <= 10; ++number) {
    const Grant grant = run.MustAcquire(kAnna, number);
    ASSERT_THAT(run.coordinator->Abandon(kAnna, grant.token), IsOk());
  }

  EXPECT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 11), kDisk), IsOk());
}

TEST(ClusterSessionsTest, TheSameIncarnationHasOneSessionAndEqualNamesGetASuffix) {
  DurableRun run(1);
  Registration registration;
  registration.incarnation = kAnna;
  registration.name = "t";
  EXPECT_EQ(*run.coordinator->Register(registration), "t");

  registration.incarnation = kBert;
  EXPECT_EQ(*run.coordinator->Register(registration), "t-2");

  EXPECT_EQ(run.coordinator->state().sessions.size(), 2u);
}

TEST(ClusterSessionsTest, TrainersOfAnotherVersionOrWithOtherEdgesAreRefused) {
  DurableRun run(1);
  Registration registration;
  registration.incarnation = kBert;
  registration.algorithm_version = kAlgorithmVersion + 1;
  EXPECT_THAT(run.coordinator->Register(registration),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("algorithm version 2")));

  registration.algorithm_version = kAlgorithmVersion;
  registration.data_sets = {{"elsewhere/edges", 0xabc}};
  EXPECT_THAT(run.coordinator->Register(registration),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("abc")));

  registration.data_sets = {{"elsewhere/edges", 0}};  // the run's own
  EXPECT_THAT(run.coordinator->Register(registration), IsOk());
}

TEST(ClusterSessionsTest, CallsOfAnotherRunOrLifeAreRefused) {
  DurableRun run(1);
  const RunContext context = run.coordinator->context();
  run.Restart();

  EXPECT_THAT(run.coordinator->Check({}), IsOk());
  EXPECT_THAT(run.coordinator->Check(context), IsOk()) << "sessions survive restarts";
  RunContext other = context;
  other.run_id = "x";
  EXPECT_THAT(run.coordinator->Check(other),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("run r"), HasSubstr("run x"))));
  RunContext before = run.coordinator->context();
  before.generation = 0;
  EXPECT_THAT(run.coordinator->Check(before), StatusIs(absl::StatusCode::kAborted));
  EXPECT_FALSE(run.coordinator->superseded());
}

TEST(ClusterSessionsTest, ALockServerThatMeetsALaterLifeMustEnd) {
  DurableRun run(1);
  RunContext later = run.coordinator->context();
  ++later.term;
  EXPECT_THAT(run.coordinator->Check(later), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(run.coordinator->superseded());

  run.Restart();
  RunContext twin = run.coordinator->context();
  twin.lock_server = 77;
  EXPECT_THAT(run.coordinator->Check(twin), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_TRUE(run.coordinator->superseded());
}

TEST(ClusterSessionsTest, APausedRunGrantsNothingAndTakesWhatIsFinished) {
  DurableRun run(2);
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  run.Sync();
  run.Restart();

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  EXPECT_FALSE(run.Acquire(kAnna, 2)->grant.has_value());

  ASSERT_THAT(run.coordinator->Pause(false), IsOk());
  EXPECT_TRUE(run.Acquire(kAnna, 2)->grant.has_value());
}

// Sessions without a grant are told of nothing without a search, until a grant ends.
TEST(ClusterSessionsTest, WhoWaitsIsGrantedABucketHoweverTheGrantBeforeHasEnded) {
  constexpr SessionId kCarl = 1003;
  const std::function<void(DurableRun*, const Grant&)> ends[] = {
      [](DurableRun* run, const Grant& grant) {
        EXPECT_THAT(run->Release(kAnna, grant, kDisk), IsOk());
      },
      [](DurableRun* run, const Grant& grant) {
        EXPECT_THAT(run->coordinator->Abandon(kAnna, grant.token), IsOk());
      },
      [](DurableRun* run, const Grant&) { EXPECT_THAT(run->coordinator->Leave(kAnna), IsOk()); },
      [](DurableRun* run, const Grant&) {
        run->Pass(absl::Seconds(20));
        for (const SessionId session : {kBert, kCarl}) {
          EXPECT_THAT(run->coordinator->Heartbeat(session, {}, 1), IsOk());
        }
        run->Pass(absl::Seconds(11));
      },
  };
  for (const auto& end : ends) {
    DurableRun run(1);  // one bucket a pass
    run.Register(kBert);
    run.Register(kCarl);
    const Grant grant = run.MustAcquire(kAnna, 1);
    for (const SessionId session : {kBert, kCarl, kBert}) {
      ASSERT_FALSE(run.Acquire(session, 1)->grant.has_value());
    }

    end(&run, grant);

    EXPECT_TRUE(run.Acquire(kCarl, 1)->grant.has_value());
    EXPECT_FALSE(run.Acquire(kBert, 1)->grant.has_value());
  }
}

TEST(ClusterSessionsTest, TheViewShowsTrainersAndBuckets) {
  DurableRun run(2);
  const Grant grant = run.MustAcquire(kAnna, 1);

  const RunView view = run.coordinator->View(/*with_buckets=*/true);

  ASSERT_EQ(view.trainers.size(), 1u);
  EXPECT_EQ(view.trainers[0].name, "t");
  EXPECT_THAT(view.trainers[0].buckets, ElementsAre(grant.buckets[0].bucket));
  EXPECT_EQ(view.phase, RunPhase::kRunning);
  const Bucket b = grant.buckets[0].bucket;
  ASSERT_EQ(view.buckets.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(view.buckets[static_cast<size_t>(i)],
              i == b.lhs * 2 + b.rhs ? BucketStatus::kGranted : BucketStatus::kFree);
  }
}

}  // namespace
}  // namespace weft
