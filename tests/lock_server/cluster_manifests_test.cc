// Manifests and rewinds: what is kept, and what happens when it is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/lock_server/cluster_runs.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using ::testing::Contains;
using testing::DiskRun;
using ::testing::ElementsAre;
using testing::FindOrder;
using testing::FullRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::kAnna;
using testing::kDisk;
using testing::kDiskStore;
using testing::kMemory;
using testing::kMemoryStore;
using testing::MakeClusterPlan;
using testing::MemoryRun;
using ::testing::Not;
using testing::ParamServer;
using testing::PartitionServer;
using ::testing::SizeIs;
using testing::StatusIs;
using testing::StoredAt;
using testing::TwoBuckets;

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

TEST(ClusterManifestsTest, TrainersStayUntilWhatTheRunEndsWithIsDurable) {
  RunPlan plan = MakeClusterPlan(2);
  plan.num_epochs = 1;
  MemoryRun run(plan);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kMemory);
  EXPECT_FALSE(run.Acquire(kAnna, number + 1)->run_done);

  // It is lost: the pass is to be trained again.
  ASSERT_THAT(run.RestartStore(), IsOk());
  run.Register(kAnna + 1);
  number = 0;
  run.FinishPass(kAnna + 1, &number, {{kMemoryStore, 2}});
  run.Persist(2);

  EXPECT_TRUE(run.Acquire(kAnna + 1, number + 1)->run_done);
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

// Of a run whose only versions are current ones, on a store that has had its first keep list.
bool SweepsAtOnce(ClusterRun* run, const ServerInfo& store, const std::vector<Place>& places) {
  uint64_t number = 0;
  const Grant first = run->MustAcquire(kAnna, ++number);
  WEFT_CHECK(run->Release(kAnna, first, places).ok());
  run->clock.Advance(absl::Seconds(2));
  WEFT_CHECK(run->Report(store)->keep_list.has_value());
  // Nothing has come to an end since.
  WEFT_CHECK(!run->Report(store)->keep_list.has_value());
  const Grant second = run->MustAcquire(kAnna, ++number);
  WEFT_CHECK(run->Release(kAnna, second, places).ok());
  return run->Report(store)->keep_list.has_value();
}

TEST(ClusterManifestsTest, AMemoryStoreIsToSweepAsSoonAsThereIsMuchToDrop) {
  MemoryRun memory(TwoBuckets());
  DiskRun disk(TwoBuckets());

  EXPECT_TRUE(SweepsAtOnce(&memory, PartitionServer(kMemoryStore, 1, false), kMemory));
  EXPECT_FALSE(SweepsAtOnce(&disk, PartitionServer(kDiskStore, 1), kDisk));
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

TEST(ClusterManifestsTest, VersionsArePreservedEveryFewEpochs) {
  RunPlan plan = MakeClusterPlan(2);
  plan.num_epochs = 5;
  plan.preservation_interval = 2;
  DiskRun run(plan);
  uint64_t number = 0;

  for (int epoch = 0; epoch < 5; ++epoch) run.FinishPass(kAnna, &number, kDisk);

  std::vector<std::pair<int64_t, bool>> versions;
  for (const ManifestView& m : run.coordinator->View(false).manifests) {
    versions.emplace_back(m.version, m.preserved);
  }
  EXPECT_THAT(versions, ElementsAre(std::pair(2, true), std::pair(4, true), std::pair(5, false)));
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

TEST(ClusterManifestsTest, ASnapshotThatCannotBeRestoredIsCheckedAndTheRunGoesFurtherBack) {
  RunPlan plan = MakeClusterPlan(2, 1);
  plan.num_epochs = 3;
  FullRun run(plan);
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  run.CutAndStore(1, 1);
  ASSERT_THAT(run.coordinator->Preserve(1, true), IsOk());
  run.FinishPass(kAnna, &number, kDisk);
  run.CutAndStore(1, 2);
  auto restore = FindOrder<RestoreParameters>(*run.ReportParams(ParamServer(21, 2), 0, 0));
  ASSERT_EQ(run.coordinator->context().generation, 2u);
  ASSERT_TRUE(restore.has_value());
  ASSERT_EQ(restore->second.first_open_pass, 2);

  ASSERT_THAT(run.ReportParams(ParamServer(21, 2), 0, 0,
                               {{restore->first, absl::DataLossError("is damaged"), std::nullopt}}),
              IsOk());
  const auto verify = FindOrder<VerifyShard>(*run.Report(PartitionServer(kDiskStore, 1)));
  ASSERT_TRUE(verify.has_value());
  EXPECT_EQ(verify->second.shard.version, restore->second.snapshots[0].version);
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1),
                         {{verify->first, absl::DataLossError("checksum"), std::nullopt}}),
              IsOk());

  EXPECT_EQ(run.coordinator->context().generation, 3u);
  restore = FindOrder<RestoreParameters>(*run.ReportParams(ParamServer(21, 2), 0, 0));
  ASSERT_TRUE(restore.has_value());
  EXPECT_EQ(restore->second.first_open_pass, 1);
}

TEST(ClusterManifestsTest, PartitionServersKeepTheBytesOfWhatIsCommitted) {
  RunPlan plan = MakeClusterPlan(2, 1);
  plan.cluster->encode_state = [](const RunState& state) {
    return absl::StrCat("from ", state.origin, " pass ", state.position.pass);
  };
  FullRun run(plan);
  ASSERT_THAT(run.Report(PartitionServer(13, 1)), IsOk());
  uint64_t number = 0;
  run.FinishPass(kAnna, &number, kDisk);
  EXPECT_FALSE(FindOrder<StoreManifest>(*run.Report(PartitionServer(kDiskStore, 1))).has_value());
  run.CutAndStore(1, 1);

  // One of the two is told, and the other is to copy it.
  const auto at_disk = FindOrder<StoreManifest>(*run.Report(PartitionServer(kDiskStore, 1)));
  const auto at_other = FindOrder<StoreManifest>(*run.Report(PartitionServer(13, 1)));
  ASSERT_NE(at_disk.has_value(), at_other.has_value());
  const auto& order = at_disk.has_value() ? *at_disk : *at_other;
  const StoreId first = at_disk.has_value() ? kDiskStore : 13;
  const StoreId second = at_disk.has_value() ? 13 : kDiskStore;
  const Token manifest = order.second.version.token;
  EXPECT_EQ(order.second.version.key.entity_type, kManifestType);
  EXPECT_EQ(order.second.manifest, absl::StrCat("from ", manifest, " pass 1"));
  VersionInfo stored = {order.second.version, {ShardInfo{}}};
  stored.shards[0].places = {{first, 0}};
  ASSERT_THAT(run.Report(PartitionServer(first, 1), {{order.first, absl::OkStatus(), stored}}),
              IsOk());
  const auto copy = FindOrder<CopyShard>(*run.Report(PartitionServer(second, 1)));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->second.version, order.second.version);
  EXPECT_THAT(run.coordinator->keep_list().keep, Contains(order.second.version));

  // It stays until the next one is there.
  run.FinishPass(kAnna, &number, kDisk);
  run.CutAndStore(1, 2);
  EXPECT_THAT(run.coordinator->keep_list().keep, Contains(order.second.version));
  for (const StoreId store : {kDiskStore, StoreId{13}}) {
    const auto next = FindOrder<StoreManifest>(*run.Report(PartitionServer(store, 1)));
    if (!next.has_value()) continue;
    stored = {next->second.version, {ShardInfo{}}};
    stored.shards[0].places = {{store, 0}};
    ASSERT_THAT(run.Report(PartitionServer(store, 1), {{next->first, absl::OkStatus(), stored}}),
                IsOk());
    break;
  }
  EXPECT_THAT(run.coordinator->keep_list().keep, Not(Contains(order.second.version)));
  EXPECT_THAT(run.coordinator->keep_list().keep, Contains(stored.version));
}

TEST(ClusterManifestsTest, AManifestTooLargeForAMessageIsKeptWithoutStatisticsOrNotAtAll) {
  for (const bool fits_without : {true, false}) {
    RunPlan plan = MakeClusterPlan(2, 1);
    plan.cluster->encode_state = [fits_without](const RunState& state) {
      const bool statistics = !state.manifests.Find(state.origin)->ended_pass.empty();
      return std::string(statistics || !fits_without ? size_t{4} << 20 : 10, 'x');
    };
    FullRun run(plan);
    uint64_t number = 0;
    run.FinishPass(kAnna, &number, kDisk);
    run.CutAndStore(1, 1);

    const auto order = FindOrder<StoreManifest>(*run.Report(PartitionServer(kDiskStore, 1)));

    ASSERT_EQ(order.has_value(), fits_without);
    if (fits_without) {
      EXPECT_EQ(order->second.manifest.size(), 10u);
    }
  }
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
