// What is measured of a run: refusals, grants and sessions, edges and speed, checkpoints.
#include "services/lock_server/run_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/recorded_metrics.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::PartitionServer;
using testing::RecordedMetrics;

constexpr SessionId kAnna = 1001;
constexpr SessionId kBert = 1002;
const std::vector<Place> kDisk = {{11, 0}};

// A run of 2 x 2 buckets with one durable partition server and two trainers.
struct MeasuredRun : ClusterRun {
  explicit MeasuredRun(RunPlan plan = MakeClusterPlan(2)) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(11, 1)).ok());
    Register(kAnna);
    Register(kBert);
  }

  RecordedMetrics Page() const {
    RecordedMetrics page;
    WriteRunMetrics(coordinator->metrics(), &page);
    return page;
  }
  double Value(const std::string& sample) const { return Page().Value(sample); }
  double Refused(const std::string& reason) const {
    return Value("weft_lock_refused_calls_total{reason=" + reason + "}");
  }
};

TEST(RunMetricsTest, AReleaseThatIsRepeatedChangesNothingAndIsCounted) {
  MeasuredRun run;
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  const double edges = run.Value("weft_lock_committed_edges_total{kind=trained}");

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());

  EXPECT_EQ(run.Value("weft_lock_repeated_calls_total{call=release}"), 1);
  EXPECT_EQ(run.Value("weft_lock_committed_edges_total{kind=trained}"), edges);
}

TEST(RunMetricsTest, AForeignGrantIsRefusedAndCounted) {
  MeasuredRun run;
  const Grant grant = run.MustAcquire(kAnna, 1);

  EXPECT_TRUE(absl::IsAborted(run.Release(kBert, grant, kDisk).status()));

  EXPECT_EQ(run.Refused("grant_ended"), 1);
  EXPECT_EQ(run.Value("weft_lock_buckets{state=granted}"), 1);
}

TEST(RunMetricsTest, EveryRefusalHasItsReason) {
  MeasuredRun run;
  const Grant grant = run.MustAcquire(kAnna, 1);

  EXPECT_FALSE(run.Acquire(77, 1).ok());
  EXPECT_EQ(run.Refused("session_ended"), 1);
  EXPECT_FALSE(run.coordinator->Check({"another", 0, 0, std::nullopt}).ok());
  EXPECT_EQ(run.Refused("wrong_run"), 1);
  EXPECT_FALSE(run.coordinator->Check({"r", 0, 0, Generation{0}}).ok());
  EXPECT_EQ(run.Refused("old_generation"), 1);
  EXPECT_FALSE(run.Release(kAnna, grant, {}).ok());
  EXPECT_EQ(run.Refused("not_stored"), 1);
  Registration other;
  other.incarnation = 5;
  other.algorithm_version = kAlgorithmVersion + 1;
  EXPECT_FALSE(run.coordinator->Register(other).ok());
  EXPECT_EQ(run.Refused("other_version"), 1);
  ReleaseRequest malformed = testing::ReleaseOf(grant);
  malformed.buckets.clear();
  EXPECT_FALSE(run.coordinator->Release(kAnna, malformed).ok());
  EXPECT_EQ(run.Refused("malformed"), 1);

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  ReleaseRequest wrong = testing::ReleaseOf(run.MustAcquire(kAnna, 2));
  wrong.buckets[0].trained_edges += 1;
  for (const PartitionKey& key : wrong.stored) {
    wrong.places.push_back(testing::StoredAt({key, wrong.token}, kDisk));
  }
  EXPECT_FALSE(run.coordinator->Release(kAnna, wrong).ok());
  EXPECT_EQ(run.Refused("wrong_edges"), 1);
  EXPECT_FALSE(run.Acquire(kBert, 1).ok());
  EXPECT_EQ(run.Refused("run_failed"), 1);
  EXPECT_EQ(run.Value("weft_lock_run_phase{phase=failed}"), 1);
}

TEST(RunMetricsTest, ASilentTrainersGrantExpiresAndItsBucketIsQueuedAgain) {
  MeasuredRun run;
  run.MustAcquire(kAnna, 1);
  EXPECT_EQ(run.Value("weft_lock_grants"), 1);
  run.Pass(absl::Seconds(10));
  EXPECT_NEAR(run.Value("weft_lock_oldest_grant_age_seconds"), 10, 1);

  run.Pass(absl::FromChrono(run.plan.cluster->lease) + absl::Seconds(2));

  const RecordedMetrics page = run.Page();
  EXPECT_EQ(page.Value("weft_lock_sessions_ended_total{reason=silent}"), 2);
  EXPECT_EQ(page.Value("weft_lock_grants_ended_total{reason=expired}"), 1);
  EXPECT_EQ(page.Value("weft_lock_requeued_buckets_total"), 1);
  EXPECT_EQ(page.Value("weft_lock_grants"), 0);
  EXPECT_EQ(page.Value("weft_lock_oldest_grant_age_seconds"), 0);
  EXPECT_EQ(page.Value("weft_lock_buckets{state=free}"), 4);
}

// A call later than its last heartbeat keeps the session alive for longer than the heartbeat alone
// would; its grants live as long.
TEST(RunMetricsTest, ADeadTrainersGrantsExpireWithItsSessionWhateverItCalledLast) {
  MeasuredRun run;
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.coordinator->Heartbeat(kAnna, {grant.token}, 1), IsOk());
  run.Pass(absl::Seconds(5));
  ASSERT_THAT(run.Acquire(kAnna, 1), IsOk());
  const absl::Duration lease = absl::FromChrono(run.plan.cluster->lease);

  run.Pass(lease - absl::Seconds(3));
  EXPECT_EQ(run.Value("weft_lock_grants"), 1) << "a lease after the last heartbeat";
  run.Pass(absl::Seconds(4));

  EXPECT_EQ(run.Value("weft_lock_grants_ended_total{reason=expired}"), 1);
  EXPECT_EQ(run.Value("weft_lock_grants_ended_total{reason=unknown}"), 0);
}

TEST(RunMetricsTest, AGrantThatItsLivingTrainerDoesNotNameIsUnknown) {
  MeasuredRun run;
  run.MustAcquire(kAnna, 1);
  for (int i = 0; i < 7; ++i) {
    run.Pass(absl::Seconds(5));
    ASSERT_THAT(run.coordinator->Heartbeat(kAnna, {}, 0), IsOk());
  }

  EXPECT_EQ(run.Value("weft_lock_grants_ended_total{reason=unknown}"), 1);
  EXPECT_EQ(run.Value("weft_lock_grants_ended_total{reason=expired}"), 0);
}

TEST(RunMetricsTest, TheLogSaysWhichTrainerHadWhichBucketAndHowItEnded) {
  RunPlan plan = MakeClusterPlan(2);
  plan.cluster->verbose = true;
  MeasuredRun run(std::move(plan));
  const Grant first = run.MustAcquire(kAnna, 1);
  run.TakeLines();

  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk());
  const Grant second = run.MustAcquire(kAnna, 2);
  ASSERT_THAT(run.coordinator->Leave(kAnna), IsOk());

  const auto of = [](const Grant& grant) {
    const Bucket bucket = grant.buckets[0].bucket;
    return absl::StrCat("pass=0 bucket=(", bucket.lhs, ",", bucket.rhs,
                        ") trainer=t token=", grant.token);
  };
  EXPECT_THAT(run.TakeLines(),
              ::testing::ElementsAre("grant ends: " + of(first) + " reason=released",
                                     "grant begins: " + of(second),
                                     "grant ends: " + of(second) + " reason=given_back",
                                     "session ends: trainer=t session=1001 reason=left"));
}

TEST(RunMetricsTest, TheLogIsSilentAboutGrantsThatEndAsTheyShould) {
  MeasuredRun run;
  const Grant first = run.MustAcquire(kAnna, 1);
  run.TakeLines();

  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk());
  run.MustAcquire(kAnna, 2);
  EXPECT_THAT(run.TakeLines(), ::testing::IsEmpty());

  ASSERT_THAT(run.coordinator->Leave(kAnna), IsOk());
  EXPECT_EQ(run.TakeLines().size(), 2u);
}

TEST(RunMetricsTest, TheMatrixAndTheCountsOfBucketsAgree) {
  MeasuredRun run;
  const Grant done = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.Release(kAnna, done, kDisk), IsOk());
  const Grant granted = run.MustAcquire(kAnna, 2);

  const RecordedMetrics page = run.Page();

  const auto state = [&](Bucket b) {
    return page.Value(absl::StrCat("weft_lock_bucket_state{lhs=", b.lhs, ",rhs=", b.rhs, "}"));
  };
  EXPECT_EQ(state(done.buckets[0].bucket), 3);
  EXPECT_EQ(state(granted.buckets[0].bucket), 2);
  EXPECT_EQ(page.Value("weft_lock_buckets{state=free}"), 2);
  EXPECT_EQ(page.Value("weft_lock_buckets{state=granted}"), 1);
  EXPECT_EQ(page.Value("weft_lock_buckets{state=done}"), 1);
}

TEST(RunMetricsTest, WhatMustBeKeptIsTheCurrentVersionsAtAllTheirPlaces) {
  RunPlan plan = MakeClusterPlan(2);
  plan.cluster->partition_replicas = 2;
  MeasuredRun run(plan);
  EXPECT_EQ(run.Value("weft_lock_kept_bytes"), 0);
  WEFT_CHECK(run.Report(PartitionServer(13, 1)).ok());
  const std::vector<Place> both = {{11, 0}, {13, 0}};

  const Grant first = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.Release(kAnna, first, both), IsOk());
  const double partitions = static_cast<double>(first.partitions.size());
  EXPECT_EQ(run.Value("weft_lock_kept_bytes"), partitions * 2 * 2 * 500) << "shards, replicas";

  ASSERT_THAT(run.coordinator->ForgetStore(13), IsOk());
  EXPECT_EQ(run.Value("weft_lock_kept_bytes"), partitions * 2 * 500);
}

TEST(RunMetricsTest, TooManyBucketsAreToldByStateOnly) {
  MeasuredRun run(MakeClusterPlan(65));

  const RecordedMetrics page = run.Page();

  EXPECT_EQ(page.Value("weft_lock_buckets{state=free}"), 65 * 65);
  EXPECT_FALSE(page.Has("weft_lock_bucket_state{lhs=0,rhs=0}"));
  EXPECT_TRUE(MeasuredRun(MakeClusterPlan(64)).Page().Has("weft_lock_bucket_state{lhs=63,rhs=63}"));
}

TEST(RunMetricsTest, SpeedAndWhatIsLeftFollowFromWhatWasCommitted) {
  MeasuredRun run;  // 2 epochs of 4 buckets with 10 edges
  EXPECT_TRUE(std::isnan(run.Value("weft_lock_edges_per_second")));
  EXPECT_TRUE(std::isnan(run.Value("weft_lock_eta_seconds")));
  const Grant grant = run.MustAcquire(kAnna, 1);
  run.clock.Advance(absl::Seconds(5));
  ASSERT_THAT(run.Release(kAnna, grant, kDisk), IsOk());

  const RecordedMetrics page = run.Page();

  EXPECT_EQ(page.Value("weft_lock_pass_edges"), 40);
  EXPECT_EQ(page.Value("weft_lock_pass_committed_edges"), 10);
  EXPECT_EQ(page.Value("weft_lock_run_edges"), 80);
  EXPECT_EQ(page.Value("weft_lock_run_committed_edges"), 10);
  EXPECT_EQ(page.Value("weft_lock_edges_per_second"), 2);
  EXPECT_EQ(page.Value("weft_lock_eta_seconds"), 35);
  EXPECT_EQ(page.Value("weft_lock_loss"), 0.5);
  EXPECT_EQ(page.Value("weft_lock_grant_duration_seconds_sum"), 5);
}

TEST(RunMetricsTest, ARunThatIsDoneSaysSo) {
  MeasuredRun run;
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  EXPECT_EQ(run.Value("weft_lock_pass"), 1);
  EXPECT_EQ(run.Value("weft_lock_loss"), 0.5);  // of the pass before
  run.clock.Advance(absl::Seconds(3));
  run.FinishPass(kAnna, &number, kDisk);

  const RecordedMetrics page = run.Page();

  EXPECT_EQ(page.Value("weft_lock_epoch"), 2);
  EXPECT_EQ(page.Value("weft_lock_configured_epochs"), 2);
  EXPECT_EQ(page.Value("weft_lock_run_committed_edges"), 80);
  EXPECT_EQ(page.Value("weft_lock_eta_seconds"), 0);
  EXPECT_EQ(page.Value("weft_lock_run_phase{phase=done}"), 1);
  EXPECT_EQ(page.Value("weft_lock_checkpoint_version"), 2);
  EXPECT_EQ(page.Value("weft_lock_checkpoints_pending"), 0);
  EXPECT_EQ(page.Value("weft_lock_checkpoint_duration_seconds_count"), 2);
  EXPECT_EQ(page.Value("weft_lock_checkpoint_age_seconds"), 0);
  EXPECT_EQ(page.Value("weft_lock_servers{role=partition,state=live}"), 1);
}

TEST(RunMetricsTest, ARewindEndsSessionsAndGrantsAndIsCounted) {
  MeasuredRun run;
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  run.MustAcquire(kAnna, ++number);

  ASSERT_THAT(run.coordinator->Rollback("q", 1), IsOk());

  const RecordedMetrics page = run.Page();
  EXPECT_EQ(page.Value("weft_lock_rewinds_total"), 1);
  EXPECT_EQ(page.Value("weft_lock_generation"), 2);
  EXPECT_EQ(page.Value("weft_lock_sessions_ended_total{reason=rewound}"), 2);
  EXPECT_EQ(page.Value("weft_lock_grants_ended_total{reason=rewound}"), 1);
  EXPECT_EQ(page.Value("weft_lock_pass"), 1);
  EXPECT_EQ(page.Value("weft_lock_run_committed_edges"), 40);
}

TEST(CommitRateTest, ForgetsWhatIsLongAgoOnceThereIsEnoughThatIsNot) {
  CommitRate rate;
  SteadyTime now{};
  rate.Begin(now);
  for (int i = 0; i < 40; ++i) rate.Add(1000, now += std::chrono::minutes(1));
  EXPECT_NEAR(*rate.PerSecond(now), 1000 / 60.0, 1e-9);

  for (int i = 0; i < 17; ++i) rate.Add(500, now += std::chrono::minutes(1));

  EXPECT_NEAR(*rate.PerSecond(now), 500 / 60.0, 1e-9);
}

}  // namespace
}  // namespace weft
