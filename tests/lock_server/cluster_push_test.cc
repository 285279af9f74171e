// Checkpoints that are brought from outside: all of it, or nothing has happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
using testing::IsOk;
using testing::kAnna;
using testing::kDisk;
using testing::kDiskStore;
using testing::kMemory;
using testing::kMemoryStore;
using testing::MakeClusterPlan;
using testing::MakeState;
using testing::MemoryRun;
using ::testing::Not;
using testing::ParamServer;
using testing::PartitionServer;
using testing::StatusIs;
using testing::StoredAt;

// What is pushed: version 1 of a run of one edge path.
PushedCheckpoint FirstEpoch(Token token, const std::string& request = "push") {
  PushedCheckpoint pushed;
  pushed.request_id = request;
  pushed.token = token;
  pushed.version = 1;
  pushed.position.pass = 1;
  pushed.position.epoch = 1;
  return pushed;
}

PushedCheckpoint Beginning(Token token) {
  PushedCheckpoint pushed;
  pushed.request_id = "push";
  pushed.token = token;
  return pushed;
}

absl::Status AddAll(ClusterRun* run, Token token, const std::vector<Place>& places) {
  std::vector<VersionInfo> versions;
  for (PartitionId i = 0; i < run->plan.num_lhs; ++i) {
    versions.push_back(StoredAt({{0, i}, token}, places));
  }
  if (run->plan.cluster->num_param_servers > 0) {
    versions.push_back(StoredAt({{kSnapshotType, 0}, token}, places));
  }
  const absl::Status added = run->coordinator->AddPushed(token, versions);
  run->Sync();
  return added;
}

Token MustBegin(ClusterRun* run, const std::string& request = "push") {
  const auto target = run->coordinator->BeginPush(request);
  WEFT_CHECK(target.ok() && !target->committed);
  run->Sync();
  return target->token;
}

TEST(ClusterPushTest, APausedRunGoesOnFromWhatIsPushed) {
  FullRun run(2);
  uint64_t number = 0;
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, ++number), kDisk), IsOk());
  const Grant in_training = run.MustAcquire(kAnna, ++number);
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());
  EXPECT_EQ(run.coordinator->context().generation, 1u) << "nothing has happened yet";
  EXPECT_EQ(run.coordinator->progress().buckets_done, 1);

  const auto committed = run.coordinator->CommitPush(FirstEpoch(token));
  run.Sync();

  ASSERT_THAT(committed, IsOk());
  EXPECT_TRUE(*committed);
  EXPECT_EQ(run.coordinator->context().generation, 2u);
  EXPECT_THAT(run.Release(kAnna, in_training, kDisk), StatusIs(absl::StatusCode::kAborted));
  run.Restart();  // it is durable
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kPaused);
  EXPECT_EQ(run.coordinator->progress().position.epoch, 1);
  const auto order = FindOrder<RestoreParameters>(*run.ReportParams(ParamServer(21), 1, 0));
  ASSERT_TRUE(order.has_value());
  EXPECT_THAT(order->second.snapshots, ElementsAre(StoredAt({{kSnapshotType, 0}, token}, kDisk)));
  ASSERT_THAT(run.ReportParams(ParamServer(21), 2, 1), IsOk());
  ASSERT_THAT(run.coordinator->Pause(false), IsOk());
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  run.Register(kAnna);
  const Grant grant = run.MustAcquire(kAnna, 1);
  EXPECT_EQ(grant.position.pass, 1);
  for (const GrantedPartition& partition : grant.partitions) EXPECT_EQ(partition.base, token);
  EXPECT_THAT(run.coordinator->Checkpoint(1), IsOk());
}

TEST(ClusterPushTest, OneThatIsNotCommittedChangesNothing) {
  DiskRun run(MakeClusterPlan(2));
  uint64_t number = 0;
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, ++number), kDisk), IsOk());
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const RunState before = run.coordinator->state();
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());
  EXPECT_THAT(run.coordinator->keep_list().keep_tokens, ElementsAre(token));

  ASSERT_THAT(run.coordinator->Pause(false), IsOk());  // its pusher was killed

  const RunState after = run.coordinator->state();
  EXPECT_EQ(after.generation, before.generation);
  EXPECT_EQ(after.versions.Roots(), before.versions.Roots());
  EXPECT_EQ(after.places.versions(), before.places.versions());
  EXPECT_THAT(run.coordinator->keep_list().keep_tokens, ElementsAre()) << "it is garbage";
  EXPECT_THAT(run.coordinator->AddPushed(token, {}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token)), StatusIs(absl::StatusCode::kAborted));
  run.MustAcquire(kAnna, ++number);
}

TEST(ClusterPushTest, TheSameRequestGoesOnAlsoAfterARestart) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(run.coordinator->AddPushed(token, {StoredAt({{0, 0}, token}, kDisk)}), IsOk());
  run.Sync();

  run.Restart();

  EXPECT_EQ(MustBegin(&run), token);
  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("partition 1 of entity type 0 were not pushed")));
  ASSERT_THAT(run.coordinator->AddPushed(token, {StoredAt({{0, 1}, token}, kDisk)}), IsOk());
  EXPECT_TRUE(*run.coordinator->CommitPush(FirstEpoch(token)));
  EXPECT_TRUE(*run.coordinator->CommitPush(FirstEpoch(token))) << "the same answer";
  EXPECT_EQ(run.coordinator->context().generation, 2u) << "once";
}

TEST(ClusterPushTest, WhoRepeatsACommittedOneIsToldSo) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());
  ASSERT_TRUE(*run.coordinator->CommitPush(FirstEpoch(token)));
  EXPECT_TRUE(run.coordinator->BeginPush("push")->committed);
  ASSERT_THAT(run.coordinator->Pause(false), IsOk());
  EXPECT_TRUE(run.coordinator->BeginPush("push")->committed) << "also while it trains";
  run.Register(kAnna);
  ASSERT_THAT(run.Release(kAnna, run.MustAcquire(kAnna, 1), kDisk), IsOk());

  ASSERT_THAT(run.coordinator->Pause(true), IsOk());

  // Paused after more training, the same again means: back to it.
  const Token again = MustBegin(&run);
  EXPECT_NE(again, token);
  ASSERT_THAT(AddAll(&run, again, kDisk), IsOk());
  EXPECT_TRUE(*run.coordinator->CommitPush(FirstEpoch(again)));
  EXPECT_EQ(run.coordinator->context().generation, 3u);
  EXPECT_EQ(run.coordinator->progress().buckets_done, 0);
}

TEST(ClusterPushTest, AnotherOneTakesItsPlace) {
  DiskRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run, "one");
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());

  const Token other = MustBegin(&run, "other");

  EXPECT_NE(other, token);
  EXPECT_THAT(AddAll(&run, token, kDisk), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token, "one")),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("another push")));
  EXPECT_THAT(run.coordinator->keep_list().keep_tokens, ElementsAre(other));
}

TEST(ClusterPushTest, OnlyIntoARunThatDoesNotTrain) {
  DiskRun run(MakeClusterPlan(2));
  EXPECT_THAT(run.coordinator->BeginPush("push"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("weft cluster pause")));
  const Grant grant = run.MustAcquire(kAnna, 1);
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());
  ASSERT_THAT(run.coordinator->ReportFailure(kAnna, grant.token, {{0, 0}, "NaN"}), IsOk());

  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has failed (NaN")));
  EXPECT_EQ(run.coordinator->context().generation, 1u);

  RunPlan waiting = MakeClusterPlan(2);
  waiting.bucket_edges.clear();
  ClusterRun without_edges(waiting);
  EXPECT_THAT(without_edges.coordinator->BeginPush("push"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("waits for the edges")));
}

TEST(ClusterPushTest, WhatDoesNotFitIsRefused) {
  RunState state = MakeState(2);
  state.shape.entity_types[0].counts = {10, 10};
  ClusterRun run(MakeClusterPlan(2), state);
  ASSERT_THAT(run.Report(PartitionServer(kDiskStore, 1)), IsOk());
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  const auto add = [&](const VersionInfo& info) {
    return run.coordinator->AddPushed(token, {info});
  };

  EXPECT_THAT(add(StoredAt({{0, 2}, token}, kDisk)), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(add(StoredAt({{0, 1}, token + 1}, kDisk)),
              StatusIs(absl::StatusCode::kInvalidArgument));
  VersionInfo short_one = StoredAt({{0, 1}, token}, kDisk);
  short_one.shards.pop_back();
  EXPECT_THAT(add(short_one), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("partition 1 of entity type 0: it has 5 rows")));
  EXPECT_THAT(add(StoredAt({{0, 1}, token}, {})), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_THAT(AddAll(&run, token, kDisk), IsOk());
  PushedCheckpoint elsewhere = FirstEpoch(token);
  elsewhere.position.edge_path = 1;
  EXPECT_THAT(run.coordinator->CommitPush(elsewhere),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of this run")));
  EXPECT_EQ(run.coordinator->context().generation, 1u);
}

TEST(ClusterPushTest, MemoryStoresWriteItToDiskFirst) {
  MemoryRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kMemory), IsOk());

  const auto not_yet = run.coordinator->CommitPush(FirstEpoch(token));
  ASSERT_THAT(not_yet, IsOk());
  EXPECT_FALSE(*not_yet);
  EXPECT_EQ(run.coordinator->context().generation, 1u);
  run.Persist();

  EXPECT_TRUE(*run.coordinator->CommitPush(FirstEpoch(token)));
  ASSERT_THAT(run.RestartStore(), IsOk());
  EXPECT_EQ(run.coordinator->context().generation, 2u) << "nothing of it is lost with the process";
  EXPECT_EQ(run.coordinator->progress().position.epoch, 1);
}

TEST(ClusterPushTest, WhatIsLostBeforeTheCommitIsSaid) {
  MemoryRun run(MakeClusterPlan(2));
  ASSERT_THAT(run.coordinator->Pause(true), IsOk());
  const Token token = MustBegin(&run);
  ASSERT_THAT(AddAll(&run, token, kMemory), IsOk());
  ASSERT_THAT(run.RestartStore(), IsOk());

  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("push once more")));

  ASSERT_THAT(AddAll(&run, token, {{kMemoryStore, 2}}), IsOk());
  EXPECT_THAT(run.coordinator->CommitPush(FirstEpoch(token)), IsOk());
}

TEST(ClusterPushTest, ARunWithAnInitPathBeginsWithWhatIsPushed) {
  RunPlan plan = MakeClusterPlan(2, 1);
  plan.cluster->init_path = "old/model";
  DiskRun run(plan);
  const auto waits = run.ReportParams(ParamServer(21), 0, 0);
  EXPECT_FALSE(FindOrder<RestoreParameters>(*waits).has_value());
  EXPECT_EQ(run.coordinator->phase(), RunPhase::kPreparing);
  EXPECT_EQ(run.coordinator->View(false).missing_checkpoint, "old/model");
  EXPECT_THAT(run.coordinator->View(false).reason,
              HasSubstr("`weft checkpoint push old/model ADDRESS`"));
  EXPECT_THAT(run.TakeLines(), Contains(HasSubstr("init_path")));
  EXPECT_FALSE(run.Acquire(kAnna, 1)->grant.has_value());
  const Token token = MustBegin(&run);
  const VersionInfo first = StoredAt({{0, 0}, token}, kDisk);
  const VersionInfo shared = StoredAt({{kSnapshotType, 0}, token}, kDisk);
  ASSERT_THAT(run.coordinator->AddPushed(token, {first, shared}), IsOk());

  ASSERT_TRUE(*run.coordinator->CommitPush(Beginning(token)));

  EXPECT_EQ(run.coordinator->View(false).missing_checkpoint, "");
  const auto order = FindOrder<RestoreParameters>(*run.ReportParams(ParamServer(21), 0, 0));
  ASSERT_TRUE(order.has_value());
  EXPECT_THAT(order->second.snapshots, ElementsAre(shared));
  ASSERT_THAT(run.ReportParams(ParamServer(21), 2, 0), IsOk());
  run.Register(kAnna);
  EXPECT_EQ(run.MustAcquire(kAnna, 1).position.pass, 0);
  EXPECT_EQ(run.coordinator->state().versions.current({0, 0}), token);
  EXPECT_EQ(run.coordinator->state().versions.current({0, 1}), kInitialToken);
  ASSERT_THAT(run.coordinator->Rollback("back", 0), IsOk());
  EXPECT_EQ(run.coordinator->state().versions.current({0, 0}), token) << "that is its beginning";
}

}  // namespace
}  // namespace weft
