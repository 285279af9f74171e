// Checkpoints that are brought into a cluster: what was trained here goes on there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "graph/checkpoint/checkpoint_metadata.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "services/common/file_util.h"
#include "tests/integration/cluster_world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::kPartitions;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::NumParamServers;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunningProgram;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;

constexpr int kEpochs = 2;

// A graph whose relation has an operator: its parameters are shared.
TrainWorld::Options SharedWorld() {
  return SmallWorld(
      {{"num_epochs", kEpochs},
       {"relations",
        {{{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}}}}});
}

// A cluster without trainers, and the first epoch of its run, trained on this machine in `model`.
class CheckpointPushTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
    const ProgramResult trained = world_.Train({"--set", "num_epochs=1"});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  }
  // Waits for its servers, then pauses.
  void StartPaused(LocalCluster* cluster) {
    ASSERT_TRUE(cluster->ok());
    cluster->Await("the servers", [](const v1::GetRunStateResponse& state) {
      return state.phase() == v1::RUN_PHASE_RUNNING &&
             state.servers().partition_servers_size() == 2;
    });
    const ProgramResult paused = Weft({"cluster", "pause", cluster->processes().lock_server()});
    ASSERT_EQ(paused.exit_code, 0) << paused.err;
  }
  LocalCluster::Options Options(const std::string& store = "rocksdb") {
    LocalCluster::Options options = ClusterOf(world_, store);
    options.trainers = 0;
    return options;
  }
  ProgramResult Weft(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), WeftPath());
    return RunProgram(arguments, world_.InFolder());
  }
  ProgramResult Push(LocalCluster* cluster, const std::string& folder = "model") {
    return Weft({"checkpoint", "push", folder, cluster->processes().lock_server()});
  }
  void ExpectUntouched(LocalCluster* cluster) {
    const auto state = cluster->lock_server().GetRunState(false);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->context().generation(), 1u);
    EXPECT_EQ(state->position().pass_id(), 0);
    EXPECT_EQ(NewestVersion(*state), 0);
  }
  // The files of version 1 in both folders say the same.
  void ExpectSameVersion(const std::string& folder) {
    for (int p = 0; p < kPartitions; ++p) {
      const EmbeddingPartition was = world_.Embeddings(p, 1);
      const EmbeddingPartition is = world_.Embeddings(p, 1, folder);
      EXPECT_TRUE(std::ranges::equal(was.embeddings.span(), is.embeddings.span())) << p;
      EXPECT_TRUE(std::ranges::equal(was.adagrad_sums.span(), is.adagrad_sums.span())) << p;
    }
    auto was = ReadModelFile(world_.File("model/model.v1.h5"));
    auto is = ReadModelFile(world_.File(folder + "/model.v1.h5"));
    ASSERT_TRUE(was.ok() && is.ok()) << was.status() << is.status();
    ASSERT_EQ(was->all().size(), 1u);
    ASSERT_EQ(is->all().size(), 1u);
    ASSERT_TRUE(ReadModelFile(world_.File("model/model.v1.h5"), &*was).ok());  // with sums
    ASSERT_TRUE(ReadModelFile(world_.File(folder + "/model.v1.h5"), &*is).ok());
    EXPECT_TRUE(std::ranges::equal(was->all()[0].values.span(), is->all()[0].values.span()));
    EXPECT_TRUE(
        std::ranges::equal(was->all()[0].adagrad_sums.span(), is->all()[0].adagrad_sums.span()));
    EXPECT_EQ(was->steps, is->steps);
  }

  const TrainWorld world_{SharedWorld()};
};

TEST_P(CheckpointPushTest, TheClusterHasWhatWasPushedAndTrainsTheNextEpoch) {
  LocalCluster cluster(Options(GetParam()));
  StartPaused(&cluster);

  const ProgramResult pushed = Push(&cluster);

  ASSERT_EQ(pushed.exit_code, 0) << pushed.err << cluster.Logs();
  EXPECT_THAT(pushed.out, AllOf(HasSubstr("version 1 of model is pushed (4 partitions"),
                                HasSubstr("goes on after 1 of 2 epochs"),
                                HasSubstr("it is paused; it trains after: weft cluster resume")));
  const std::string address = cluster.processes().lock_server();
  const ProgramResult pulled = Weft({"checkpoint", "pull", address, "-o", "pulled"});
  ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
  ExpectSameVersion("pulled");
  ExpectLastPassIsExact(&cluster, world_, 1);  // training_stats.json came along
  EXPECT_EQ(world_.StatsLines("pulled").size(), world_.StatsLines().size());
  const ProgramResult again = Push(&cluster);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("has gone on from version 1 of model already"));

  ASSERT_EQ(Weft({"cluster", "resume", address}).exit_code, 0);
  ASSERT_TRUE(cluster.processes().AddTrainer().ok());
  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  EXPECT_EQ(end.context().generation(), 2u);
  EXPECT_EQ(NewestVersion(end), kEpochs);
  ExpectLastPassIsExact(&cluster, world_, kEpochs);
  ASSERT_EQ(Weft({"checkpoint", "pull", address, "-o", "pulled"}).exit_code, 0);
  for (const char* folder : {"model", "pulled"}) {
    const ProgramResult eval =
        Weft({"eval", "run.json", "--set", absl::StrCat("checkpoint_path=", folder), "--edges",
              "edges", "--json", absl::StrCat(folder, ".json")});
    ASSERT_EQ(eval.exit_code, 0) << eval.err;
  }
  EXPECT_GT(world_.Json("pulled.json")["raw"]["mrr"].get<double>(),
            world_.Json("model.json")["raw"]["mrr"].get<double>())
      << "the second epoch made it no better";
}

INSTANTIATE_TEST_SUITE_P(Stores, CheckpointPushTest, ::testing::Values("rocksdb", "memory"));

using CheckpointPushTroublesTest = CheckpointPushTest;

TEST_P(CheckpointPushTroublesTest, APushThatIsKilledChangesNothingAndTheNextOneIsWhole) {
  LocalCluster cluster(Options());
  StartPaused(&cluster);
  const std::string address = cluster.processes().lock_server();
  cluster.processes().Find("partition-server-1")->Signal(SIGSTOP);  // so that it gets stuck
  {
    RunningProgram push({WeftPath(), "checkpoint", "push", "model", address}, world_.InFolder());
    while (push.running() && !absl::StrContains(cluster.Logs(), "push of a checkpoint begins")) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    ASSERT_TRUE(push.running()) << push.out() << push.err();
    push.Signal(SIGKILL);
    push.Wait();
  }
  cluster.processes().Find("partition-server-1")->Signal(SIGCONT);

  ExpectUntouched(&cluster);
  const ProgramResult pull = Weft({"checkpoint", "pull", address, "-o", "pulled"});
  EXPECT_EQ(pull.exit_code, 1);
  EXPECT_THAT(pull.err, HasSubstr("nothing is committed yet"));
  const ProgramResult pushed = Push(&cluster);
  ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
  ASSERT_EQ(Weft({"checkpoint", "pull", address, "-o", "pulled"}).exit_code, 0);
  ExpectSameVersion("pulled");
}

TEST_P(CheckpointPushTroublesTest, WhatDoesNotFitIsRefusedWithBothValues) {
  LocalCluster cluster(Options());
  StartPaused(&cluster);
  const auto train_other = [&](const std::string& folder, const std::vector<std::string>& sets) {
    std::vector<std::string> arguments = {"--set", "num_epochs=1", "--set",
                                          "checkpoint_path=" + folder};
    for (const std::string& set : sets) {
      arguments.push_back("--set");
      arguments.push_back(set);
    }
    const ProgramResult trained = world_.Train(arguments);
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
  };
  train_other("small", {"dimension=8"});
  nlohmann::json other = world_.config();
  other["relations"][0]["operator"] = "translation";
  other["checkpoint_path"] = "moved";
  ASSERT_TRUE(WriteFileAtomically(world_.File("moved.json"), other.dump()).ok());
  ASSERT_EQ(Weft({"train", "moved.json", "--set", "num_epochs=1"}).exit_code, 0);
  EmbeddingPartition broken = world_.Embeddings(2, 1);
  broken.embeddings.span()[5] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_TRUE(WriteEmbeddingsFile(world_.File("model/embeddings_user_2.v1.h5"), broken, 0.1,
                                  CheckpointMetadata())
                  .ok());

  const ProgramResult small = Push(&cluster, "small");
  EXPECT_EQ(small.exit_code, 1);
  EXPECT_THAT(small.err, HasSubstr("entities.user: dimension: was 8, is 16"));
  const ProgramResult moved = Push(&cluster, "moved");
  EXPECT_EQ(moved.exit_code, 1);
  EXPECT_THAT(moved.err, HasSubstr("relations[0].operator: was translation, is diagonal"));
  const ProgramResult nan = Push(&cluster);
  EXPECT_EQ(nan.exit_code, 1);
  EXPECT_THAT(nan.err,
              AllOf(HasSubstr("embeddings_user_2.v1.h5"), HasSubstr("row 0"), HasSubstr("nan")));
  const ProgramResult nothing = Push(&cluster, "nowhere");
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.err, HasSubstr("nowhere: has no committed checkpoint"));
  ExpectUntouched(&cluster);
  ASSERT_EQ(Weft({"cluster", "resume", cluster.processes().lock_server()}).exit_code, 0);
  const ProgramResult running = Push(&cluster);
  EXPECT_EQ(running.exit_code, 1);
  EXPECT_THAT(running.err, HasSubstr("weft cluster pause"));
}

TEST_P(CheckpointPushTroublesTest, AnInitPathIsBroughtByClusterUpAndAwaitedByOthers) {
  const auto up = [&](const std::string& init_path) {
    return Weft({"cluster", "up", "run.json", "--trainers", "1", "--threads", "1", "--set",
                 "init_path=" + init_path, "--set", "checkpoint_path=next", "--set", "lr=0",
                 "--set", "num_epochs=1"});
  };
  LocalCluster::Options options = Options();
  options.overrides.push_back("init_path=model");
  options.trainers = 1;
  {
    LocalCluster cluster(options);
    ASSERT_TRUE(cluster.ok());
    cluster.Await("a run that waits", [](const v1::GetRunStateResponse& state) {
      return state.missing_checkpoint() == "model" && state.servers().param_servers_size() == 1 &&
             state.servers().partition_servers_size() == 2 && state.trainers_size() == 1;
    });
    const std::string address = cluster.processes().lock_server();
    EXPECT_THAT(Weft({"status", address}).out, HasSubstr("`weft checkpoint push model ADDRESS`"));
    ExpectUntouched(&cluster);
    const ProgramResult pushed = Push(&cluster);
    ASSERT_EQ(pushed.exit_code, 0) << pushed.err;
    EXPECT_THAT(pushed.out, HasSubstr("the run begins with its embeddings"));
    cluster.AwaitEnd();
    ExpectLastPassIsExact(&cluster, world_, kEpochs);
  }

  const ProgramResult done = up("model");

  ASSERT_EQ(done.exit_code, 0) << done.out << done.err;
  EXPECT_THAT(done.err, HasSubstr("brings the checkpoint of init_path from model"));
  for (int p = 0; p < kPartitions; ++p) {  // nothing was learned
    EXPECT_TRUE(std::ranges::equal(world_.Embeddings(p, 1).embeddings.span(),
                                   world_.Embeddings(p, 1, "next").embeddings.span()))
        << p;
  }
}

INSTANTIATE_TEST_SUITE_P(RocksDb, CheckpointPushTroublesTest, ::testing::Values("rocksdb"));

}  // namespace
}  // namespace weft
