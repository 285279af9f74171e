// What an operator does with a cluster that runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "graph/checkpoint/model_file.h"
#include "tests/integration/cluster_world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::NumParamServers;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunningProgram;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;

// Longer than a test looks at it.
constexpr int kManyEpochs = 10'000;

// A graph whose relation has an operator: its parameters are shared.
TrainWorld::Options SharedWorld(int epochs) {
  return SmallWorld(
      {{"num_epochs", epochs},
       {"relations",
        {{{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}}}}});
}

class CheckpointCommandTest : public ::testing::Test {
 protected:
  CheckpointCommandTest() : cluster_(ClusterOf(world_)) {}

  ProgramResult Checkpoint(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {WeftPath(), "checkpoint", arguments[0],
                                        cluster_.processes().lock_server()};
    command.insert(command.end(), arguments.begin() + 1, arguments.end());
    return RunProgram(command, world_.InFolder());
  }
  int64_t AwaitVersion(int64_t at_least) {
    return NewestVersion(cluster_.Await("a version", [&](const v1::GetRunStateResponse& state) {
      return NewestVersion(state) >= at_least;
    }));
  }

  const TrainWorld world_{SharedWorld(kManyEpochs)};
  LocalCluster cluster_;
};

TEST_F(CheckpointCommandTest, WhatIsPulledFromARunningClusterCanBeEvaluated) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  ASSERT_TRUE(cluster_.ok());
  AwaitVersion(3);

  const ProgramResult pulled = Checkpoint({"pull", "-o", "pulled"});

  ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
  EXPECT_THAT(pulled.out, ContainsRegex("version [0-9]+ is in pulled"));
  const ProgramResult eval =
      RunProgram({WeftPath(), "eval", "run.json", "--set", "checkpoint_path=pulled", "--edges",
                  "edges", "--json", "eval.json"},
                 world_.InFolder());
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_GT(world_.Json("eval.json")["raw"]["mrr"].get<double>(), 0.05);
  // A diagonal begins with ones; what the parameter server had was trained.
  const std::string version = world_.CommittedVersion("pulled");
  const auto model = ReadModelFile(world_.File("pulled/model.v" + version + ".h5"));
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_EQ(model->all().size(), 1u);
  EXPECT_NE(model->all()[0].values.span()[0], 1.0f);
}

TEST_F(CheckpointCommandTest, APreservedVersionStaysAndTheRunGoesBackToIt) {
  ASSERT_TRUE(cluster_.ok());
  int64_t version = 0;
  ProgramResult preserved;
  do {  // it may be superseded before it is preserved
    version = AwaitVersion(version + 1);
    preserved = Checkpoint({"preserve", std::to_string(version)});
  } while (preserved.exit_code != 0 && !HasFailure());
  EXPECT_THAT(preserved.out, HasSubstr("is preserved"));
  AwaitVersion(version + 3);
  const ProgramResult list = Checkpoint({"list"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, ContainsRegex("version " + std::to_string(version) + "[^\n]*preserved"));

  const ProgramResult back = Checkpoint({"rollback", std::to_string(version)});

  ASSERT_EQ(back.exit_code, 0) << back.err;
  EXPECT_THAT(back.out, HasSubstr("generation 2"));
  const v1::GetRunStateResponse state =
      cluster_.Await("the next version", [&](const v1::GetRunStateResponse& now) {
        return now.context().generation() == 2 && NewestVersion(now) > version;
      });
  for (const v1::ManifestInfo& manifest : state.manifests()) {
    EXPECT_EQ(manifest.generation(), manifest.version() > version ? 2u : 1u)
        << "version " << manifest.version() << ": later ones are gone";
  }
  ExpectLastPassIsExact(&cluster_, world_, version);
}

TEST_F(CheckpointCommandTest, WhatIsNotThereIsSaid) {
  ASSERT_TRUE(cluster_.ok());

  const ProgramResult result = Checkpoint({"preserve", "999999"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("checkpoint preserve"), HasSubstr("no version 999999")));
}

TEST(ClusterUpSignalTest, CtrlCStopsEverythingAndTheSameCommandGoesOn) {
  constexpr int kEpochs = 40;
  const TrainWorld world(SharedWorld(kEpochs));
  const std::vector<std::string> command = {WeftPath(),
                                            "cluster",
                                            "up",
                                            "run.json",
                                            "--threads",
                                            "1",
                                            "--param-servers",
                                            std::to_string(NumParamServers()),
                                            "--json",
                                            "up.json"};
  RunningProgram first(command, world.InFolder());
  const auto training = [&] {
    const std::string lock_server = LocalCluster::LockServerOf(world.File("model/.cluster"));
    if (lock_server.empty()) return false;
    const ProgramResult state =
        RunProgram({WeftPath(), "status", lock_server, "--json"}, world.InFolder());
    return state.exit_code == 0 && nlohmann::json::parse(state.out)["epoch"].get<int>() >= 2;
  };
  while (first.running() && !training()) absl::SleepFor(absl::Milliseconds(20));
  ASSERT_TRUE(first.running()) << first.err();

  first.Signal(SIGINT);
  const ProgramResult stopped = first.Wait();

  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.out, HasSubstr("the same command goes on later"));
  EXPECT_EQ(world.CommittedVersion(), "") << "it was over before it could be stopped";
  const ProgramResult second = RunProgram(command, world.InFolder());
  ASSERT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_EQ(world.CommittedVersion(), std::to_string(kEpochs));
  EXPECT_LT(world.Json("up.json")["edges"].get<int64_t>(), (kEpochs - 1) * world.num_edges())
      << "it began anew";
  int64_t edges = 0;
  for (const nlohmann::json& line : world.StatsLines()) {
    if (line.contains("stats")) edges += line["stats"]["count"].get<int64_t>();
  }
  EXPECT_EQ(edges, world.num_edges()) << "of the last pass";
}

// Whether partition servers hold the edges; else they lie in a folder.
class ClusterRecoveryTest : public ::testing::TestWithParam<bool> {};

TEST_P(ClusterRecoveryTest, ALockServerThatHasLostItsFolderGoesOnFromTheNewestManifest) {
  TrainWorld::Options shape = SharedWorld(kManyEpochs);
  if (GetParam()) shape.config["edge_paths"] = {"cluster://train"};
  const TrainWorld world(shape);
  LocalCluster::Options options = ClusterOf(world);
  if (GetParam()) options.overrides = {"entity_path=/nowhere", "checkpoint_path=/nowhere"};
  std::optional<RunningProgram> recovered;  // ends last: trainers leave it
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  if (GetParam()) {
    const ProgramResult import =
        RunProgram({WeftPath(), "import", "run.json", "edges.tsv", "--lhs-col", "0", "--rel-col",
                    "1", "--rhs-col", "2", "--to", cluster.processes().lock_server()},
                   world.InFolder());
    ASSERT_EQ(import.exit_code, 0) << import.err << cluster.Logs();
    std::filesystem::remove_all(world.File("entities"));
  }
  const v1::GetRunStateResponse before =
      cluster.Await("some versions",
                    [](const v1::GetRunStateResponse& state) { return NewestVersion(state) >= 5; });
  const std::string lock_server = cluster.processes().lock_server();
  cluster.processes().Find("lock-server")->Stop(absl::ZeroDuration());
  std::filesystem::remove_all(options.folder + "/lock-server");

  std::vector<std::string> command = {LocalCluster::Program("weft-lock-server"),
                                      "--config",
                                      options.config,
                                      "--data-dir",
                                      world.File("new-folder"),
                                      "--listen",
                                      lock_server,
                                      "--param-servers",
                                      std::to_string(options.param_servers)};
  for (const std::string& key : options.overrides) {
    command.push_back("--set");
    command.push_back(key);
  }
  for (const v1::ServerInfo& server : before.servers().partition_servers()) {
    command.push_back("--recover-from");
    command.push_back(server.address());
  }
  recovered.emplace(command, world.InFolder());

  GrpcOperatorClient::Options client_options;
  client_options.address = lock_server;
  const auto client = GrpcOperatorClient::Create(std::move(client_options));
  ASSERT_TRUE(client.ok()) << client.status();
  int64_t first_pass = -1;
  int64_t pass = -1;
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (recovered->running() && absl::Now() < deadline && (pass < 0 || pass < first_pass + 3)) {
    const auto state = (*client)->GetRunState(false);
    if (!state.ok()) continue;
    EXPECT_EQ(state->context().run_id(), before.context().run_id());
    EXPECT_GT(state->context().generation(), before.context().generation());
    pass = state->position().pass_id();
    if (first_pass < 0) first_pass = pass;
  }
  EXPECT_GE(first_pass, 4) << recovered->err();
  ASSERT_GE(pass, first_pass + 3) << recovered->err() << cluster.Logs();
  ExpectLastPassIsExact(**client, world, /*version=*/0);
}

INSTANTIATE_TEST_SUITE_P(Edges, ClusterRecoveryTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "InCluster" : "InFolders"; });

}  // namespace
}  // namespace weft
