// Passes of a run on one machine: when they begin, are complete and committed, and the last one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/lock_server/coordinator_fixture.h"
#include "tests/lock_server/coordinator_run.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::MakePlan;
using testing::MakeState;
using testing::ReleaseOf;
using ::testing::SizeIs;
using testing::StartRun;
using testing::TestRun;
using ::testing::UnorderedElementsAre;

TEST(RunCoordinatorPassesTest, EmptyBucketsAreDoneWhenThePassBegins) {
  RunPlan plan = MakePlan(2);
  plan.bucket_edges[0] = {0, 10, 0, 0};
  TestRun run(2, plan);

  const Grant grant = run.MustAcquire();

  EXPECT_EQ(grant.buckets[0].bucket, (Bucket{0, 1}));
  EXPECT_EQ(run.coordinator->progress().buckets_done, 3);
  ASSERT_THAT(run.Release(grant), IsOk());
  EXPECT_TRUE(run.coordinator->complete_pass().has_value());
}

TEST(RunCoordinatorPassesTest, APassWithoutEdgesIsCompleteAtOnce) {
  TestRun run(2, MakePlan(2, 0));

  const std::optional<CompletePass> pass = run.coordinator->complete_pass();

  ASSERT_TRUE(pass.has_value());
  EXPECT_EQ(pass->version, 1);
  EXPECT_THAT(pass->buckets, IsEmpty());
  EXPECT_THAT(pass->versions, SizeIs(2));
}

TEST(RunCoordinatorPassesTest, NothingIsGrantedBetweenAPassAndItsCheckpoint) {
  TestRun run(1);
  ASSERT_THAT(run.Release(run.MustAcquire()), IsOk());

  const auto result = run.Acquire();

  ASSERT_THAT(result, IsOk());
  EXPECT_FALSE(result->grant.has_value());
  EXPECT_FALSE(result->run_done);
}

TEST(RunCoordinatorPassesTest, ACommitBeginsTheNextPass) {
  TestRun run(1);
  ASSERT_THAT(run.Release(run.MustAcquire()), IsOk());

  ASSERT_THAT(run.coordinator->PassCommitted(1), IsOk());
  ASSERT_THAT(run.coordinator->PassCommitted(1), IsOk());  // a repeat

  EXPECT_EQ(run.MustAcquire().position.epoch, 1);
}

TEST(RunCoordinatorPassesTest, TheRunIsDoneAfterTheLastEpoch) {
  TestRun run(1);
  run.FinishPass();
  run.FinishPass();

  const auto result = run.Acquire();

  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->run_done);
  EXPECT_FALSE(run.coordinator->complete_pass().has_value());
}

TEST(RunCoordinatorPassesTest, CommittedVersionsAreCleanAgain) {
  TestRun run(2);
  run.FinishPass();

  for (const GrantedPartition& partition : run.MustAcquire().partitions) {
    EXPECT_FALSE(partition.dirty);
  }
}

TEST(RunCoordinatorPassesTest, TheOldVersionIsObsoleteUntilItsFilesAreRemoved) {
  TestRun run(1);
  run.FinishPass();
  EXPECT_THAT(run.coordinator->obsolete_versions(), IsEmpty());
  run.FinishPass();
  EXPECT_THAT(run.coordinator->obsolete_versions(), ElementsAre(1));

  run.Restart();
  EXPECT_THAT(run.coordinator->obsolete_versions(), ElementsAre(1));

  run.coordinator->FilesRemoved({1});
  EXPECT_THAT(run.coordinator->obsolete_versions(), IsEmpty());
}

TEST(RunCoordinatorPassesTest, EdgeChunksShareOutTheEdgesOfABucket) {
  TestRun run(1, [] {
    RunPlan plan = MakePlan(1);
    plan.num_epochs = 1;
    return plan;
  }());
  RunState state = MakeState(1);
  state.position.num_edge_chunks = 3;
  MemoryRunStore store;
  run.coordinator = StartRun(run.plan, state, &store);
  run.session = run.coordinator->Register();

  int64_t edges = 0;
  for (int chunk = 0; chunk < 3; ++chunk) {
    const Grant grant = run.MustAcquire();
    EXPECT_EQ(grant.position.edge_chunk, chunk);
    edges += grant.buckets[0].expected_edges;
    ASSERT_THAT(run.Release(grant), IsOk());
    ASSERT_THAT(run.coordinator->PassCommitted(chunk + 1), IsOk());
  }

  EXPECT_EQ(edges, 10);
  EXPECT_TRUE(run.Acquire()->run_done);
}

TEST(RunCoordinatorPassesTest, EarlyStoppingEndsTheRunAndKeepsTheBestVersion) {
  RunPlan plan = MakePlan(1);
  plan.num_epochs = 50;
  plan.early_stopping = RunConfig::EarlyStopping{EarlyStoppingMetric::kLoss, 2};
  TestRun run(1, plan);
  // By epoch; the value of an epoch judges the version that it began with.
  const std::vector<double> losses = {5, 4, 3, 3.5, 3.6};
  for (const double loss : losses) {
    ReleaseRequest release = ReleaseOf(run.MustAcquire());
    release.buckets[0].held_out_edges = 1;
    release.buckets[0].trained_edges -= 1;
    release.buckets[0].eval_before = Stats{1, {{"loss", loss}}};
    ASSERT_THAT(run.coordinator->Release(run.session, release), IsOk());
    ASSERT_THAT(run.coordinator->PassCommitted(run.coordinator->complete_pass()->version), IsOk());
    run.coordinator->FilesRemoved({});
  }

  EXPECT_TRUE(run.Acquire()->run_done);
  const RunProgress progress = run.coordinator->progress();
  EXPECT_TRUE(progress.stopped_early);
  EXPECT_EQ(progress.early_stopping.best_version, 2);
  EXPECT_EQ(progress.early_stopping.best_epoch, 2);
  EXPECT_THAT(run.coordinator->obsolete_versions(), UnorderedElementsAre(1, 3, 4));

  run.Restart();
  EXPECT_TRUE(run.Acquire()->run_done);
}

}  // namespace
}  // namespace weft
