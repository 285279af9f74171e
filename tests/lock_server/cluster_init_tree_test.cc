// The order of the first grants in a cluster: no partition is trained apart from the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "services/common/random.h"
#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::PartitionServer;

constexpr SessionId kAnna = 1001;
constexpr SessionId kBert = 1002;
const std::vector<Place> kDisk = {{11, 0}};

struct TreeRun : ClusterRun {
  explicit TreeRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(11, 1)).ok());
    Register(kAnna);
    Register(kBert);
  }
  explicit TreeRun(int partitions) : TreeRun(MakeClusterPlan(partitions)) {}

  bool IsGranted(SessionId session, uint64_t number) {
    return Acquire(session, number)->grant.has_value();
  }
};

TEST(ClusterInitTreeTest, TheSecondTrainerBeginsBesideWhatTheFirstHasTrained) {
  TreeRun run(4);
  const Grant first = run.MustAcquire(kAnna, 1);
  EXPECT_FALSE(run.IsGranted(kBert, 1));

  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk());

  const Grant second = run.MustAcquire(kBert, 1);
  const Bucket trained = first.buckets[0].bucket;
  const Bucket next = second.buckets[0].bucket;
  const std::set<PartitionId> partitions = {trained.lhs, trained.rhs};
  EXPECT_TRUE(partitions.contains(next.lhs) || partitions.contains(next.rhs));
}

TEST(ClusterInitTreeTest, NobodyWaitsForLong) {
  TreeRun run(4);
  run.MustAcquire(kAnna, 1);
  ASSERT_FALSE(run.IsGranted(kBert, 1));

  run.Pass(absl::Seconds(20));
  ASSERT_THAT(run.coordinator->Heartbeat(kAnna, {}, 1), IsOk());
  ASSERT_FALSE(run.IsGranted(kBert, 1));
  run.Pass(absl::Seconds(11));

  EXPECT_TRUE(run.IsGranted(kBert, 1));
}

TEST(ClusterInitTreeTest, WhenNobodyTrainsAnybodyMayBegin) {
  TreeRun run(4);
  const Grant first = run.MustAcquire(kAnna, 1);
  ASSERT_FALSE(run.IsGranted(kBert, 1));

  ASSERT_THAT(run.coordinator->Abandon(kAnna, first.token), IsOk());

  EXPECT_TRUE(run.IsGranted(kBert, 1));
}

TEST(ClusterInitTreeTest, ItCanBeSwitchedOff) {
  RunPlan plan = MakeClusterPlan(4);
  plan.cluster->init_tree = false;
  TreeRun run(plan);
  run.MustAcquire(kAnna, 1);

  EXPECT_TRUE(run.IsGranted(kBert, 1));
}

TEST(ClusterInitTreeTest, LaterPassesKnowNoTree) {
  TreeRun run(4);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  run.MustAcquire(kAnna, ++number);

  EXPECT_TRUE(run.IsGranted(kBert, 1));
}

// It would be waited for for ever, and grants would stay single buckets.
TEST(ClusterInitTreeTest, APartitionWithoutEdgesIsNotWaitedFor) {
  RunPlan plan = MakeClusterPlan(3);
  plan.bucket_edges[0] = {10, 10, 0, 10, 10, 0, 0, 0, 0};
  plan.commit_seconds = 1e9;
  plan.edges_per_second = 1;
  TreeRun run(plan);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);

  size_t largest = 0;
  while (largest < 2 && run.coordinator->phase() == RunPhase::kRunning) {
    const Grant grant = run.MustAcquire(kAnna, ++number);
    largest = std::max(largest, grant.buckets.size());
    ASSERT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  }
  EXPECT_GE(largest, 2u);
}

TEST(ClusterInitTreeTest, OneBucketAtATimeUntilAllPartitionsAreTrained) {
  RunPlan plan = MakeClusterPlan(2);
  plan.commit_seconds = 1e9;
  plan.edges_per_second = 1;
  TreeRun run(plan);
  uint64_t number = 0;

  std::set<PartitionId> trained;
  size_t largest = 0;
  while (largest < 2) {
    const Grant grant = run.MustAcquire(kAnna, ++number);
    largest = grant.buckets.size();
    EXPECT_TRUE(largest == 1 || trained.size() == 2);
    trained.insert({grant.buckets[0].bucket.lhs, grant.buckets[0].bucket.rhs});
    ASSERT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
  }
  EXPECT_EQ(trained.size(), 2u);
}

// Two trainers, releases in any order, restarts of the lock server.
TEST(ClusterInitTreeTest, WhileSomebodyTrainsEveryGrantTouchesATrainedPartition) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomStream random(seed, RandomUse::kTest);
    TreeRun run(6);
    std::map<SessionId, uint64_t> numbers;
    std::deque<std::pair<SessionId, Grant>> live;
    std::set<PartitionId> trained;
    int granted = 0;
    while (trained.size() < 6) {
      const SessionId session = random.Below(2) == 0 ? kAnna : kBert;
      if (random.Below(10) == 0) {
        run.Restart();
        ASSERT_THAT(run.Report(PartitionServer(11, 1)), IsOk());
      } else if (!live.empty() && random.Below(2) == 0) {
        const auto [owner, grant] = live.front();
        live.pop_front();
        ASSERT_THAT(run.Release(owner, grant, kDisk), IsOk());
        trained.insert({grant.buckets[0].bucket.lhs, grant.buckets[0].bucket.rhs});
      } else if (const auto result = run.Acquire(session, numbers[session] + 1);
                 result->grant.has_value()) {
        ++numbers[session];
        const Bucket b = result->grant->buckets[0].bucket;
        if (!live.empty()) {
          EXPECT_TRUE(trained.contains(b.lhs) || trained.contains(b.rhs)) << "seed " << seed;
          ++granted;
        }
        live.emplace_back(session, *result->grant);
      }
    }
    EXPECT_GT(granted, 0);
  }
}

}  // namespace
}  // namespace weft
