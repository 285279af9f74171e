// Servers, places, manifests and rewinds: where versions lie, what is kept, what happens when it is
// lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FindOrder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakeClusterPlan;
using ::testing::Not;
using testing::ParamServer;
using testing::PartitionServer;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::StoredAt;

constexpr SessionId kAnna = 1001;
constexpr StoreId kDiskStore = 11;
constexpr StoreId kMemoryStore = 12;
const std::vector<Place> kDisk = {{kDiskStore, 0}};
const std::vector<Place> kMemory = {{kMemoryStore, 1}};  // of its first incarnation

// Two partitions and the two buckets between them: the second grant reads what the first one
// stored.
RunPlan TwoBuckets() {
  RunPlan plan = MakeClusterPlan(2);
  plan.bucket_edges[0] = {0, 10, 10, 0};
  return plan;
}

struct DiskRun : ClusterRun {
  explicit DiskRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(kDiskStore, 1)).ok());
    Register(kAnna);
  }
};

struct MemoryRun : ClusterRun {
  explicit MemoryRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(kMemoryStore, 1, false)).ok());
    Register(kAnna);
  }
  // The memory server dies and is there again, with nothing but what was on its disk.
  absl::StatusOr<StoreInstructions> RestartStore() {
    return Report(PartitionServer(kMemoryStore, 2, false));
  }
  // It does what it is told about persisting.
  void Persist(Incarnation incarnation = 1) {
    const auto told = Report(PartitionServer(kMemoryStore, incarnation, false));
    const auto order = FindOrder<PersistShards>(*told);
    WEFT_CHECK(order.has_value());
    WEFT_CHECK(Report(PartitionServer(kMemoryStore, incarnation, false),
                      {{order->first, absl::OkStatus(), std::nullopt}}, order->second.shards)
                   .ok());
  }
};

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

TEST(ClusterPlacesTest, APlaceThatNobodyRegisteredIsRefusedAndTheGrantLivesOn) {
  DiskRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);

  EXPECT_THAT(run.Release(kAnna, grant, {{99, 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("store it again")));

  EXPECT_THAT(run.Release(kAnna, grant, kDisk), IsOk());
}

TEST(ClusterPlacesTest, WhatAMemoryServerHeldBeforeItRestartedIsStoredAgain) {
  MemoryRun run(MakeClusterPlan(2));
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_THAT(run.Release(kAnna, grant, kMemory), StatusIs(absl::StatusCode::kFailedPrecondition));

  EXPECT_THAT(run.Release(kAnna, grant, {{kMemoryStore, 2}}), IsOk());
}

TEST(ClusterPlacesTest, AMemoryServerIsNoDurablePlace) {
  MemoryRun run(MakeClusterPlan(2));

  EXPECT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), {{kMemoryStore, 0}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
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
}

TEST(ClusterServersTest, ServersThatCouldNotBeHeardHaveLostNothing) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  run.Pass(absl::Seconds(1));

  run.clock.Advance(absl::Hours(1));  // the lock server was stopped
  ASSERT_THAT(run.coordinator->Tick(), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 1u);
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

TEST(ClusterManifestsTest, NothingIsGrantedBeforeTheParametersAreThere) {
  ClusterRun run(MakeClusterPlan(2, 2));
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  run.Register(kAnna);
  const auto alone = run.ReportParams(ParamServer(21), 0, 0);
  EXPECT_FALSE(FindOrder<RestoreParameters>(*alone).has_value()) << "one is missing";
  ASSERT_THAT(run.ReportParams(ParamServer(22), 0, 0), IsOk());
  const auto told = run.ReportParams(ParamServer(21), 0, 0);
  const auto order = FindOrder<RestoreParameters>(*told);
  ASSERT_TRUE(order.has_value());
  EXPECT_THAT(order->second.snapshots, IsEmpty());
  EXPECT_EQ(order->second.num_servers, 2u);
  EXPECT_EQ(order->second.server_index, 0u);
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kPreparing);
  EXPECT_FALSE(run.Acquire(kAnna, 1)->grant.has_value());

  ASSERT_THAT(run.ReportParams(ParamServer(21), 1, 0), IsOk());
  EXPECT_FALSE(run.Acquire(kAnna, 1)->grant.has_value());
  ASSERT_THAT(run.ReportParams(ParamServer(22), 1, 0), IsOk());

  EXPECT_TRUE(run.Acquire(kAnna, 1)->grant.has_value());
}

// A run with a durable partition server and one parameter server that is ready.
struct FullRun : DiskRun {
  explicit FullRun(RunPlan plan) : DiskRun(std::move(plan)) {
    WEFT_CHECK(ReportParams(ParamServer(21), 1, 0).ok());
  }
  explicit FullRun(int partitions) : FullRun(MakeClusterPlan(partitions, 1)) {}

  // The parameter server cuts, and its snapshot is stored.
  void CutAndStore(Generation generation, int64_t pass) {
    const auto told = ReportParams(ParamServer(21), generation, pass - 1);
    const auto cut = FindOrder<CutParameters>(*told);
    WEFT_CHECK(cut.has_value() && cut->second.first_open_pass == pass);
    const auto next = ReportParams(ParamServer(21), generation, pass,
                                   {{cut->first, absl::OkStatus(), std::nullopt}});
    const auto snapshot = FindOrder<StoreSnapshot>(*next);
    WEFT_CHECK(snapshot.has_value() && snapshot->second.first_open_pass == pass);
    WEFT_CHECK(ReportParams(
                   ParamServer(21), generation, pass,
                   {{snapshot->first, absl::OkStatus(), StoredAt(snapshot->second.version, kDisk)}})
                   .ok());
  }
};

TEST(ClusterManifestsTest, ThePassEndsWhenTheParametersAreCut) {
  FullRun run(2);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kCutting);
  EXPECT_FALSE(run.Acquire(kAnna, number + 1)->grant.has_value());

  run.CutAndStore(1, 1);

  EXPECT_EQ(run.coordinator->progress().position.pass, 1);
  EXPECT_TRUE(run.Acquire(kAnna, number + 1)->grant.has_value());
}

TEST(ClusterManifestsTest, TheManifestIsCommittedWhenItsSnapshotIsStored) {
  FullRun run(2);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  ASSERT_THAT(run.ReportParams(ParamServer(21), 1, 0), IsOk());
  const auto told = run.ReportParams(ParamServer(21), 1, 1);
  EXPECT_THAT(run.coordinator->Checkpoint(1), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_TRUE(FindOrder<StoreSnapshot>(*told).has_value());

  run.Restart();  // what is pending is ordered again
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  const auto again = run.ReportParams(ParamServer(21), 1, 1);
  const auto snapshot = FindOrder<StoreSnapshot>(*again);
  ASSERT_TRUE(snapshot.has_value());
  ASSERT_THAT(run.ReportParams(
                  ParamServer(21), 1, 1,
                  {{snapshot->first, absl::OkStatus(), StoredAt(snapshot->second.version, kDisk)}}),
              IsOk());

  const auto checkpoint = run.coordinator->Checkpoint(0);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest.version, 1);
  EXPECT_THAT(checkpoint->partitions, SizeIs(2));
  EXPECT_THAT(checkpoint->snapshots, ElementsAre(StoredAt(snapshot->second.version, kDisk)));
  EXPECT_THAT(checkpoint->buckets, SizeIs(4));
}

TEST(ClusterManifestsTest, ASnapshotOfAnotherOrderIsNotTaken) {
  FullRun run(2);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  const auto told = run.ReportParams(ParamServer(21), 1, 1);
  const auto snapshot = FindOrder<StoreSnapshot>(*told);
  ASSERT_TRUE(snapshot.has_value());

  ASSERT_THAT(run.ReportParams(ParamServer(21), 1, 1,
                               {{snapshot->first, absl::OkStatus(),
                                 StoredAt({{kSnapshotType, 0}, 12345}, kDisk)}}),
              IsOk());

  EXPECT_THAT(run.coordinator->Checkpoint(0), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ClusterManifestsTest, WithoutParametersAPassWithoutEdgesIsOverAtOnce) {
  RunPlan plan = MakeClusterPlan(2);
  plan.bucket_edges[0] = {0, 0, 0, 0};
  DiskRun run(plan);

  EXPECT_EQ(run.coordinator->phase(), RunPhase::kDone);
  EXPECT_EQ(run.coordinator->Checkpoint(0)->manifest.version, 2);
  EXPECT_TRUE(run.Acquire(kAnna, 1)->run_done);
}

TEST(ClusterManifestsTest, TheKeepListHasWhatIsCurrentOfAManifestOrOfALiveGrant) {
  FullRun run(2);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  run.CutAndStore(1, 1);
  const auto committed = *run.coordinator->Checkpoint(0);
  const Grant first = run.MustAcquire(kAnna, ++number);
  ASSERT_THAT(run.Release(kAnna, first, kDisk), IsOk());
  const Grant second = run.MustAcquire(kAnna, ++number);
  ASSERT_THAT(run.Release(kAnna, second, kDisk), IsOk());
  const Grant live = run.MustAcquire(kAnna, ++number);

  run.clock.Advance(absl::Seconds(2));
  const auto told = run.Report(PartitionServer(kDiskStore, 1));

  ASSERT_TRUE(told->keep_list.has_value());
  EXPECT_EQ(told->keep_list->high_water, live.token);
  const std::vector<PartitionVersion>& keep = told->keep_list->keep;
  for (const VersionInfo& info : committed.partitions) EXPECT_THAT(keep, Contains(info.version));
  for (const VersionInfo& info : committed.snapshots) EXPECT_THAT(keep, Contains(info.version));
  for (const GrantedPartition& partition : live.partitions) {
    EXPECT_THAT(keep, Contains(PartitionVersion{partition.key, live.token}));
    if (partition.base != kInitialToken) {
      EXPECT_THAT(keep, Contains(PartitionVersion{partition.key, partition.base}));
    }
  }
  // A version that was current for a moment is garbage.
  for (const GrantedPartition& partition : second.partitions) {
    if (partition.base != first.token) continue;
    EXPECT_THAT(keep, Not(Contains(PartitionVersion{partition.key, first.token})));
  }
}

TEST(ClusterManifestsTest, OldManifestsGoUnlessSomethingKeepsThem) {
  RunPlan plan = MakeClusterPlan(2);
  plan.num_epochs = 9;
  DiskRun run(plan);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  ASSERT_THAT(run.coordinator->Preserve(1, true), IsOk());
  run.FinishPass(kAnna, &number, kDisk);
  ASSERT_THAT(run.coordinator->Pin("reader", 2, std::chrono::seconds(60)), IsOk());
  run.FinishPass(kAnna, &number, kDisk);
  run.FinishPass(kAnna, &number, kDisk);

  const auto versions = [&] {
    std::vector<int64_t> found;
    for (const ManifestView& m : run.coordinator->View(false).manifests) found.push_back(m.version);
    return found;
  };
  EXPECT_THAT(versions(), ElementsAre(1, 2, 4));

  run.Report(PartitionServer(kDiskStore, 1)).IgnoreError();
  run.coordinator->Unpin("reader");
  run.FinishPass(kAnna, &number, kDisk);
  EXPECT_THAT(versions(), ElementsAre(1, 5));
  EXPECT_THAT(run.coordinator->Pin("reader", 2, std::chrono::seconds(60)),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(ClusterManifestsTest, WithinAPassManifestsAreMadeFromTimeToTime) {
  RunPlan plan = MakeClusterPlan(2, 1);
  plan.cluster->checkpoint_interval = std::chrono::seconds(20);
  FullRun run(plan);
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());
  run.Pass(absl::Seconds(21));
  const auto told = run.ReportParams(ParamServer(21), 1, 0);
  const auto snapshot = FindOrder<StoreSnapshot>(*told);
  ASSERT_TRUE(snapshot.has_value());
  EXPECT_FALSE(snapshot->second.first_open_pass.has_value());
  ASSERT_THAT(run.ReportParams(
                  ParamServer(21), 1, 0,
                  {{snapshot->first, absl::OkStatus(), StoredAt(snapshot->second.version, kDisk)}}),
              IsOk());
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 2), kDisk), IsOk());

  // The parameter server's disk is lost: back to that manifest, with its one bucket done.
  ASSERT_THAT(run.ReportParams(ParamServer(21, 2), 0, 0), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);
  const auto restore = FindOrder<RestoreParameters>(*run.ReportParams(ParamServer(21, 2), 0, 0));
  ASSERT_TRUE(restore.has_value());
  EXPECT_EQ(restore->second.generation, 2u);
  EXPECT_THAT(restore->second.snapshots, SizeIs(1));
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

TEST(ClusterRewindTest, LosingACurrentVersionGoesBackToTheNewestManifest) {
  MemoryRun run(MakeClusterPlan(2));
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kMemory);
  run.Persist();
  ASSERT_EQ(run.coordinator->Checkpoint(0)->manifest.version, 1);
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, ++number), kMemory), IsOk());
  const RunContext before = run.coordinator->context();

  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_THAT(run.coordinator->Check(before),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("gone back")));
  EXPECT_THAT(run.Acquire(kAnna, number), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(run.coordinator->progress().position.pass, 1);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 0);
  run.Register(kAnna + 1);
  const Grant grant = run.MustAcquire(kAnna + 1, 1);
  for (const VersionInfo& info : grant.places) {
    for (const ShardInfo& shard : info.shards) {
      EXPECT_THAT(shard.places, ElementsAre(Place{kMemoryStore, 0}));
    }
  }
}

TEST(ClusterRewindTest, InTheFirstPassItGoesBackToTheBeginning) {
  MemoryRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kMemory), IsOk());

  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 0);
  run.Restart();
  EXPECT_EQ(run.coordinator->context().generation, 2u);
}

TEST(ClusterRewindTest, WithNothingToGoBackToTheRunFails) {
  MemoryRun run(MakeClusterPlan(2));
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kMemory);
  run.Persist();
  ASSERT_THAT(run.coordinator->ForgetStore(kMemoryStore), IsOk());
  run.Sync();

  EXPECT_EQ(run.coordinator->phase(), RunPhase::kFailed);
  EXPECT_THAT(run.coordinator->View(false).reason, HasSubstr("broken versions: 1"));
  run.Restart();
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kFailed);
}

TEST(ClusterRewindTest, ARollbackIsDoneOnceAndRemovesLaterManifests) {
  RunPlan plan = MakeClusterPlan(2);
  plan.num_epochs = 9;
  DiskRun run(plan);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  ASSERT_THAT(run.coordinator->Preserve(1, true), IsOk());
  run.FinishPass(kAnna, &number, kDisk);
  run.FinishPass(kAnna, &number, kDisk);
  EXPECT_THAT(run.coordinator->Rollback("r1", 2), StatusIs(absl::StatusCode::kNotFound));

  ASSERT_THAT(run.coordinator->Rollback("r1", 1), IsOk());
  ASSERT_THAT(run.coordinator->Rollback("r1", 1), IsOk());  // a repeat
  run.Sync();

  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_EQ(run.coordinator->progress().position.pass, 1);
  EXPECT_THAT(run.coordinator->Checkpoint(3), StatusIs(absl::StatusCode::kNotFound));
}

TEST(ClusterRewindTest, AFailedRunGoesOnAfterARollback) {
  DiskRun run(MakeClusterPlan(2));
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  const Grant grant = run.MustAcquire(kAnna, ++number);
  ASSERT_THAT(run.coordinator->ReportFailure(kAnna, grant.token, {grant.buckets[0].bucket, "NaN"}),
              IsOk());
  run.Sync();
  run.Restart();
  ASSERT_EQ(run.coordinator->phase(), RunPhase::kFailed);

  ASSERT_THAT(run.coordinator->Rollback("r", 1), IsOk());

  EXPECT_EQ(run.coordinator->phase(), RunPhase::kRunning);
}

TEST(ClusterRewindTest, AParameterServerOfALaterGenerationMeansThatThisLockServerIsOld) {
  FullRun run(1);

  EXPECT_THAT(run.ReportParams(ParamServer(21), 2, 0),
              StatusIs(absl::StatusCode::kFailedPrecondition));

  EXPECT_TRUE(run.coordinator->superseded());
}

TEST(ClusterEarlyStoppingTest, TheBestVersionStaysAndTheDecisionSurvives) {
  RunPlan plan = MakeClusterPlan(1);
  plan.num_epochs = 50;
  plan.early_stopping = RunConfig::EarlyStopping{EarlyStoppingMetric::kLoss, 2};
  DiskRun run(plan);
  uint64_t number = 0;
  for (const double loss : {5.0, 4.0, 3.0, 3.5, 3.6}) {
    const Grant grant = run.MustAcquire(kAnna, ++number);
    ReleaseRequest release = testing::ReleaseOf(grant);
    release.buckets[0].held_out_edges = 1;
    release.buckets[0].trained_edges -= 1;
    release.buckets[0].eval_before = Stats{1, {{"loss", loss}}};
    ASSERT_THAT(run.coordinator->Release(kAnna, release), IsOk());
    run.Sync();
  }

  EXPECT_TRUE(run.Acquire(kAnna, ++number)->run_done);
  run.Restart();
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kDone);
  EXPECT_TRUE(run.coordinator->Checkpoint(2)->manifest.best);
}

}  // namespace
}  // namespace weft
