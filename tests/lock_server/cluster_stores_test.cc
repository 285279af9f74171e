// Servers and places: who is there, and where versions lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/lock_server/cluster_runs.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::ClusterRun;
using ::testing::Contains;
using testing::DiskRun;
using ::testing::ElementsAre;
using testing::FindOrder;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::kAnna;
using testing::kDisk;
using testing::kDiskStore;
using testing::kMemory;
using testing::kMemoryStore;
using ::testing::Le;
using testing::MakeClusterPlan;
using testing::MemoryRun;
using testing::ParamServer;
using testing::PartitionServer;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::StoredAt;
using testing::TwoBuckets;

TEST(ClusterPlacesTest, AReadNamesPlacesAndChecksums) {
  DiskRun run(TwoBuckets());
  const Grant first = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk());

  const Grant second = run.MustAcquire(kAnna, 2);

  for (const GrantedPartition& partition : second.partitions) {
    if (partition.source != GrantedPartition::Source::kRead) continue;
    const PartitionVersion version = {partition.key, partition.base};
    EXPECT_THAT(second.places, Contains(StoredAt(version, kDisk)));
  }
}

TEST(ClusterPlacesTest, APlaceThatNobodyRegistersIsRefusedAfterALeaseAndTheGrantLivesOn) {
  DiskRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  const auto heartbeat = [&] { return run.coordinator->Heartbeat(kAnna, {grant.token}, 1); };

  EXPECT_THAT(run.Release(kAnna, grant, {{99, 0}}), StatusIs(absl::StatusCode::kUnavailable));
  run.Pass(absl::Seconds(20));
  ASSERT_THAT(heartbeat(), IsOk());
  EXPECT_THAT(run.Release(kAnna, grant, {{99, 0}}), StatusIs(absl::StatusCode::kUnavailable));
  run.Pass(absl::Seconds(11));
  EXPECT_THAT(run.Release(kAnna, grant, {{99, 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("store it again")));

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
}

TEST(ClusterPlacesTest, AProcessThatHasNotRegisteredYetIsWaitedFor) {
  MemoryRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  const std::vector<Place> next = {{kMemoryStore, 2}};
  EXPECT_THAT(run.Release(kAnna, grant, next), StatusIs(absl::StatusCode::kUnavailable));

  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_THAT(run.Release(kAnna, grant, next), IsOk());
}

TEST(ClusterPlacesTest, WhatAMemoryServerHeldBeforeItRestartedIsStoredAgain) {
  MemoryRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_THAT(run.Release(kAnna, grant, kMemory), StatusIs(absl::StatusCode::kFailedPrecondition));

  EXPECT_THAT(run.Release(kAnna, grant, {{kMemoryStore, 2}}), IsOk());
}

// What is put again may lie on its disk already: written by its last process, and never told.
TEST(ClusterPlacesTest, WhatAMemoryServerHasOnItsDiskOutlivesIt) {
  MemoryRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.Release(kAnna, grant, {{kMemoryStore, 0}}), IsOk());

  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 1u);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);
}

TEST(ClusterPlacesTest, ReplicasAreAskedForAsFarAsServersAreThere) {
  RunPlan plan = MakeClusterPlan(2);
  plan.cluster->partition_replicas = 2;
  DiskRun run(plan);
  const Grant first = run.MustAcquire(kAnna, 1);
  EXPECT_EQ(first.replicas, 2);
  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk()) << "there is one server only";

  ASSERT_THAT(run.Report(PartitionServer(13, 1)), IsOk());
  const Grant second = run.MustAcquire(kAnna, 2);
  EXPECT_THAT(run.Release(kAnna, second, kDisk), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(run.Release(kAnna, second, {{kDiskStore, 0}, {13, 0}}), IsOk());
}

TEST(ClusterPlacesTest, WhatHasTooFewReplicasIsCopied) {
  RunPlan plan = MakeClusterPlan(2);
  plan.cluster->partition_replicas = 2;
  DiskRun pair(plan);
  const Grant first = pair.MustAcquire(kAnna, 1);
  ASSERT_THAT(pair.Release(kAnna, first, kDisk), IsOk());

  const auto told = pair.Report(PartitionServer(13, 1));
  const auto order = FindOrder<CopyShard>(*told);
  ASSERT_TRUE(order.has_value());
  EXPECT_THAT(order->second.shard.places, ElementsAre(kDisk[0]));
  VersionInfo copied = {order->second.version, {order->second.shard}};
  copied.shards[0].places = {{13, 0}};
  ASSERT_THAT(pair.Report(PartitionServer(13, 1), {{order->first, absl::OkStatus(), copied}}),
              IsOk());

  const auto state = pair.coordinator->state();
  EXPECT_THAT((*state.places.Find(copied.version))[copied.shards[0].shard].places, SizeIs(2));
}

// A run whose versions are to lie at two stores, and lie at one: 13 has come after them.
struct MendingRun : DiskRun {
  MendingRun(int partitions, uint64_t releases) : DiskRun(Plan(partitions)) {
    for (uint64_t number = 1; number <= releases; ++number) {
      WEFT_CHECK(Release(kAnna, MustAcquire(kAnna, number), kDisk).ok());
    }
    WEFT_CHECK(ReportNew().ok());
  }

  static RunPlan Plan(int partitions) {
    RunPlan plan = MakeClusterPlan(partitions);
    plan.cluster->partition_replicas = 2;
    return plan;
  }
  absl::StatusOr<StoreInstructions> ReportNew(std::vector<OrderResult> results = {}) {
    return Report(PartitionServer(13, 31), std::move(results));
  }
  // What the new server is to copy.
  std::vector<NumberedOrder> Copies() {
    std::vector<NumberedOrder> copies;
    const auto told = ReportNew();
    for (const NumberedOrder& order : told->orders) {
      if (std::holds_alternative<CopyShard>(order.order)) copies.push_back(order);
    }
    return copies;
  }
  void Fail(const std::vector<NumberedOrder>& orders, const absl::Status& why) {
    std::vector<OrderResult> results;
    for (const NumberedOrder& order : orders) results.push_back({order.id, why, std::nullopt});
    WEFT_CHECK(ReportNew(std::move(results)).ok());
  }
};

ShardName CopiedShard(const NumberedOrder& order) {
  const auto& copy = std::get<CopyShard>(order.order);
  return {copy.version, copy.shard.shard};
}

TEST(ClusterPlacesTest, ACopyThatFailsIsOrderedAgainAfterPausesThatGrow) {
  MendingRun run(2, 1);
  const std::vector<NumberedOrder> first = run.Copies();
  ASSERT_FALSE(first.empty());

  std::vector<int> pauses;  // in ticks
  for (int failure = 0; failure < 10; ++failure) {
    run.Fail(run.Copies(), absl::UnavailableError("nobody answers"));
    EXPECT_THAT(run.Copies(), IsEmpty());
    const uint64_t revision = run.coordinator->sync_revision();
    int ticks = 0;
    for (; ticks < 100 && run.Copies().size() < first.size(); ++ticks) {
      run.Pass(absl::FromChrono(SessionLeases::kTick));
    }
    EXPECT_GT(run.coordinator->sync_revision(), revision) << "who waits is told";
    pauses.push_back(ticks);
  }

  EXPECT_THAT(pauses.front(), Le(2));
  EXPECT_THAT(pauses.back(), AllOf(Ge(10), Le(20))) << "5 to 10 seconds";
  EXPECT_EQ(CopiedShard(run.Copies()[0]), CopiedShard(first[0]));
  EXPECT_NE(run.Copies()[0].id, first[0].id);
}

TEST(ClusterPlacesTest, WhileACopyIsHeldBackOthersAreMade) {
  MendingRun run(4, 12);
  const std::vector<NumberedOrder> first = run.Copies();
  ASSERT_THAT(first, SizeIs(4)) << "so many at a time";

  run.Fail(first, absl::UnavailableError("nobody answers"));

  const std::vector<NumberedOrder> others = run.Copies();
  EXPECT_FALSE(others.empty());
  for (const NumberedOrder& failed : first) {
    for (const NumberedOrder& other : others) EXPECT_NE(CopiedShard(other), CopiedShard(failed));
  }
}

TEST(ClusterPlacesTest, AServerThatRegistersIsAReasonToTryAgainAtOnce) {
  MendingRun run(2, 1);
  for (int i = 0; i < 5; ++i) {
    run.Fail(run.Copies(), absl::UnavailableError("nobody answers"));
    run.Pass(absl::Seconds(11));
  }
  run.Fail(run.Copies(), absl::UnavailableError("nobody answers"));
  ASSERT_THAT(run.Copies(), IsEmpty());

  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 2)), IsOk());

  EXPECT_FALSE(run.Copies().empty());
}

TEST(ClusterPlacesTest, WhatCannotBeCopiedIsCheckedWhereItLies) {
  MendingRun run(2, 1);
  const std::vector<NumberedOrder> copies = run.Copies();

  run.Fail({copies[0]}, absl::DataLossError("from host:11: checksum"));

  const auto order = FindOrder<VerifyShard>(*run.Report(PartitionServer(kDiskStore, 1)));
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->second.shard, CopiedShard(copies[0]));
}

TEST(ClusterPlacesTest, ShardsThatMakeNoPartitionAreRefused) {
  DiskRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  ReleaseRequest request = testing::ReleaseOf(grant);
  for (const PartitionKey& key : request.stored) {
    request.places.push_back(StoredAt({key, grant.token}, kDisk));
  }
  request.places[0].shards[1].first_row = 4;

  EXPECT_THAT(run.coordinator->Release(kAnna, request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shard 1")));
  request.places.clear();
  EXPECT_THAT(run.coordinator->Release(kAnna, request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lies nowhere")));
}

TEST(ClusterPlacesTest, ABaseThatCannotBeReadIsChecked) {
  DiskRun run(TwoBuckets());
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  const Grant grant = run.MustAcquire(kAnna, 2);
  ASSERT_FALSE(grant.places.empty());
  const ShardName shard = {grant.places[0].version, 0};

  const auto left = run.coordinator->ReportUnreadable(kAnna, grant.token, shard, kDisk[0]);

  ASSERT_THAT(left, IsOk());
  EXPECT_THAT(*left, IsEmpty());
  const auto told = run.Report(PartitionServer(kDiskStore, 1));
  const auto order = FindOrder<VerifyShard>(*told);
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->second.shard, shard);
  // It is there: nothing happens.
  ASSERT_THAT(
      run.Report(PartitionServer(kDiskStore, 1), {{order->first, absl::OkStatus(), std::nullopt}}),
      IsOk());
  EXPECT_EQ(run.coordinator->context().generation, 1u);
  EXPECT_FALSE(FindOrder<VerifyShard>(*run.Report(PartitionServer(kDiskStore, 1))).has_value());
}

TEST(ClusterPlacesTest, ABaseThatIsNotThereRewindsTheRun) {
  DiskRun run(TwoBuckets());
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  const Grant grant = run.MustAcquire(kAnna, 2);
  const ShardName shard = {grant.places[0].version, 0};
  ASSERT_THAT(run.coordinator->ReportUnreadable(kAnna, grant.token, shard, kDisk[0]), IsOk());
  const auto order = FindOrder<VerifyShard>(*run.Report(PartitionServer(kDiskStore, 1)));

  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1),
                         {{order->first, absl::DataLossError("checksum"), std::nullopt}}),
              IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 2u);
}

TEST(ClusterPlacesTest, ReportsOfOtherThanABaseChangeNothing) {
  DiskRun run(TwoBuckets());
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  const Grant grant = run.MustAcquire(kAnna, 2);

  EXPECT_THAT(run.coordinator->ReportUnreadable(kAnna, grant.token, {{{0, 0}, 12345}, 0}, kDisk[0]),
              StatusIs(absl::StatusCode::kAborted));

  EXPECT_FALSE(FindOrder<VerifyShard>(*run.Report(PartitionServer(kDiskStore, 1))).has_value());
}

TEST(ClusterServersTest, TheOlderOfTwoProcessesOfOneStoreMustEnd) {
  DiskRun run(MakeClusterPlan(1));
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 2)), IsOk());

  EXPECT_THAT(run.Report(PartitionServer(kDiskStore, 1)), StatusIs(absl::StatusCode::kAborted));
}

TEST(ClusterServersTest, ARetiredStoreIsRefusedForEver) {
  DiskRun run(MakeClusterPlan(1));
  ASSERT_THAT(run.coordinator->ForgetStore(kDiskStore), IsOk());
  run.Sync();
  run.Restart();

  EXPECT_THAT(run.Report(PartitionServer(kDiskStore, 3)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("retired")));
  EXPECT_THAT(run.coordinator->ForgetStore(99), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ClusterServersTest, ForgettingAStoreWithCurrentVersionsRewinds) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());

  ASSERT_THAT(run.coordinator->ForgetStore(kDiskStore), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 0);
}

TEST(ClusterServersTest, AServerThatIsSilentForLongHasLostWhatItHad) {
  RunPlan plan = MakeClusterPlan(2);
  plan.cluster->store_lost_after = std::chrono::minutes(2);
  DiskRun run(plan);
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  run.heard.clear();
  run.Pass(absl::Seconds(100));
  EXPECT_EQ(run.coordinator->context().generation, 1u);

  run.Pass(absl::Seconds(21));

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_THAT(run.coordinator->View(false).silent_servers, ::testing::Contains(kDiskStore))
      << "given up, it is not there again";
}

TEST(ClusterServersTest, ServersThatCouldNotBeHeardHaveLostNothing) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  run.Pass(absl::Seconds(1));

  run.clock.Advance(absl::Hours(1));  // the lock server was stopped
  ASSERT_THAT(run.coordinator->Tick(), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 1u);
}

TEST(ClusterServersTest, WhatTheRunWaitsForIsNamedByRoleAndAddressWithTheCause) {
  ClusterRun run(MakeClusterPlan(1, 2));
  EXPECT_EQ(run.coordinator->waits_for(),
            "waits for servers: 2 of 2 parameter servers have not registered; no partition server "
            "is there");

  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  ASSERT_THAT(run.ReportParams(ParamServer(21), 0, 0), IsOk());
  EXPECT_EQ(run.coordinator->waits_for(),
            "waits for servers: the parameter server at host:21 has no parameters yet; 1 of 2 "
            "parameter servers have "
            "not registered");

  const auto told = run.ReportParams(ParamServer(22, 102), 0, 0);
  const auto restore = FindOrder<RestoreParameters>(*told);
  ASSERT_TRUE(restore.has_value());
  ASSERT_THAT(
      run.ReportParams(ParamServer(22, 102), 0, 0,
                       {{restore->first, absl::UnavailableError("store at X"), std::nullopt}}),
      IsOk());
  ASSERT_THAT(run.ReportParams(ParamServer(21), 1, 0), IsOk());
  EXPECT_EQ(run.coordinator->waits_for(),
            "waits for servers: the parameter server at host:22 has no parameters yet: store at X");

  ASSERT_THAT(run.ReportParams(ParamServer(22, 102), 1, 0), IsOk());
  EXPECT_EQ(run.coordinator->waits_for(), "");
  EXPECT_EQ(run.coordinator->View(false).reason, "");
  run.clock.Advance(absl::FromChrono(run.plan.cluster->lease));
  EXPECT_EQ(run.coordinator->waits_for(),
            "waits for servers: the partition server at host:11 is silent; the parameter server at "
            "host:21 is silent; "
            "the parameter server at host:22 is silent; no partition server is there");
  EXPECT_EQ(run.coordinator->View(false).reason, run.coordinator->waits_for());
}

TEST(ClusterServersTest, AParameterServerTooManyIsRefused) {
  ClusterRun run(MakeClusterPlan(1, 1));
  ASSERT_THAT(run.ReportParams(ParamServer(21), 0, 0), IsOk());

  EXPECT_THAT(run.ReportParams(ParamServer(22), 0, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1 parameter servers")));
}

TEST(ClusterServersTest, SessionsThatHaveEndedAreNamedToParameterServers) {
  ClusterRun run(MakeClusterPlan(1, 1));
  run.Register(kAnna);
  StoreReport report;
  report.server = ParamServer(21);
  report.params.joined = {kAnna, 5};

  EXPECT_THAT(run.coordinator->Sync(report)->ended_sessions, ElementsAre(5u));
}

TEST(ClusterServersTest, AReportThatComesLateIsNoLoss) {
  ClusterRun run(MakeClusterPlan(2, 1));
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  ASSERT_THAT(run.ReportParams(ParamServer(21), 0, 0), IsOk());
  ASSERT_THAT(run.ReportParams(ParamServer(21), 1, 0), IsOk());

  ASSERT_THAT(run.ReportParams(ParamServer(21), 0, 0), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 1u);
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kRunning);
}

}  // namespace
}  // namespace weft
