// Trainers that come and go, and those that are turned away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/integration/cluster_world.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ErrorLines;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::IsTraining;
using ::weft::testing::LocalCluster;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunningProgram;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainerCommand;
using ::weft::testing::TrainWorld;

constexpr int kEpochs = 10;

TEST(ClusterTrainersTest, ATrainerThatIsAskedToStopHandsBackAtOnce) {
  // With the usual lease: nobody waits for it.
  const TrainWorld world(
      SmallWorld({{"num_epochs", kEpochs}, {"commit_seconds", 0}, {"lease_seconds", 30}}));
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  cluster.Await("trainer-0 at work", [](const v1::GetRunStateResponse& state) {
    return state.position().epoch() > 0 && IsTraining(state, "trainer-0");
  });

  cli::ChildProcess* const trainer = cluster.processes().Find("trainer-0");
  const absl::Time asked = absl::Now();
  trainer->Stop(absl::Seconds(20));

  EXPECT_LT(absl::Now() - asked, absl::Seconds(10));
  EXPECT_EQ(trainer->exit_code(), 0) << cluster.Logs();
  const auto state = cluster.lock_server().GetRunState(false);
  ASSERT_TRUE(state.ok()) << state.status();
  for (const v1::TrainerInfo& other : state->trainers()) EXPECT_NE(other.name(), "trainer-0");
  cluster.AwaitEnd();
  ExpectLastPassIsExact(&cluster, world, kEpochs);
}

TEST(ClusterTrainersTest, TrainersThatComeLateGetBucketsWhateverTheirName) {
  const TrainWorld world(SmallWorld({{"num_epochs", kEpochs}, {"commit_seconds", 0}}));
  LocalCluster::Options options = ClusterOf(world);
  options.trainers = 1;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  cluster.Await("the second epoch",
                [](const v1::GetRunStateResponse& state) { return state.position().epoch() > 0; });

  RunningProgram late(TrainerCommand(cluster.processes().lock_server(), {"--name", "trainer-0"}),
                      world.InFolder());

  std::string name;
  cluster.Await("a second trainer at work", [&](const v1::GetRunStateResponse& state) {
    for (const v1::TrainerInfo& trainer : state.trainers()) {
      if (trainer.name() != "trainer-0" && !trainer.buckets().empty()) name = trainer.name();
    }
    return !name.empty();
  });
  EXPECT_THAT(name, HasSubstr("trainer-0"));
  cluster.AwaitEnd();
  ExpectLastPassIsExact(&cluster, world, kEpochs);
  EXPECT_EQ(late.Wait().exit_code, 0) << late.err();
}

TEST(ClusterTrainersTest, ALockServerThatIsNotThereIsSaidInTime) {
  const absl::Time begun = absl::Now();

  const ProgramResult result = RunProgram(TrainerCommand("127.0.0.1:1"));

  EXPECT_LT(absl::Now() - begun, absl::Seconds(10));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("lock server at 127.0.0.1:1"), HasSubstr("gave up"),
                                HasSubstr("onnect")));
  EXPECT_EQ(ErrorLines(result.err), 1) << result.err;
}

TEST(ClusterTrainersTest, ALogForMachinesHasNothingButJsonLines) {
  const ProgramResult result = RunProgram(TrainerCommand("127.0.0.1:1", {"--log-format", "json"}));

  std::vector<nlohmann::json> events;
  for (const absl::string_view line : absl::StrSplit(result.err, '\n', absl::SkipEmpty())) {
    events.push_back(nlohmann::json::parse(line.begin(), line.end(), nullptr, false));
    ASSERT_TRUE(events.back().is_object()) << line;
    EXPECT_EQ(events.back()["program"], "weft-trainer") << line;
  }
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.front()["event"], "waiting for the lock server");
  EXPECT_EQ(events.back()["level"], "error");
  EXPECT_THAT(events.back()["cause"].get<std::string>(), HasSubstr("lock server at 127.0.0.1:1"));

  const ProgramResult other = RunProgram(TrainerCommand("127.0.0.1:1", {"--log-format", "xml"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("--log-format"), HasSubstr("json")));
}

TEST(ClusterTrainersTest, ATrainerThatCannotTakePartIsToldWhy) {
  const TrainWorld world(SmallWorld({{"num_epochs", 10'000}}));
  TrainWorld::Options other_options = SmallWorld();
  other_options.num_edges = 5'000;
  const TrainWorld other(other_options);
  LocalCluster::Options options = ClusterOf(world);
  options.trainers = 0;
  options.partition_servers = 1;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  const std::string lock_server = cluster.processes().lock_server();
  const v1::GetRunStateResponse state =
      cluster.Await("the partition server", [](const v1::GetRunStateResponse& now) {
        return !now.servers().partition_servers().empty();
      });
  const std::string partition_server = state.servers().partition_servers(0).address();

  const ProgramResult other_data = RunProgram(TrainerCommand(
      lock_server, {"--entity-path", other.File("entities"), "--edge-path", other.File("edges")}));
  const ProgramResult no_data =
      RunProgram(TrainerCommand(lock_server, {"--edge-path", world.File("nowhere")}));
  const ProgramResult other_role = RunProgram(TrainerCommand(partition_server));

  EXPECT_EQ(other_data.exit_code, 1);
  EXPECT_THAT(other_data.err,
              AllOf(HasSubstr("lock server at " + lock_server), HasSubstr("data set")));
  EXPECT_EQ(ErrorLines(other_data.err), 1) << other_data.err;
  EXPECT_EQ(no_data.exit_code, 1);
  EXPECT_THAT(no_data.err, HasSubstr(world.File("nowhere")));
  EXPECT_EQ(ErrorLines(no_data.err), 1) << no_data.err;
  EXPECT_EQ(other_role.exit_code, 1);
  EXPECT_THAT(other_role.err,
              AllOf(HasSubstr("lock server at " + partition_server), HasSubstr("another program")));
  EXPECT_EQ(ErrorLines(other_role.err), 1) << other_role.err;
}

TEST(ClusterTrainersTest, ATrainerDoesNotGoOnInAnotherRun) {
  const TrainWorld world(SmallWorld({{"num_epochs", 10'000}}));
  LocalCluster::Options options = ClusterOf(world);
  options.trainers = 1;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  const v1::GetRunStateResponse before = cluster.Await(
      "trainer-0 at work",
      [](const v1::GetRunStateResponse& state) { return IsTraining(state, "trainer-0"); });

  // Its folder is gone: whoever listens at its address then has a run of its own.
  cli::ChildProcess* const lock_server = cluster.processes().Find("lock-server");
  lock_server->Signal(SIGKILL);
  lock_server->Stop(absl::Seconds(5));
  std::filesystem::remove_all(options.folder + "/lock-server");
  cli::ChildProcess* const trainer = cluster.processes().Find("trainer-0");
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (trainer->Running() && absl::Now() < deadline) {
    // Servers that have met another run end; that is not this test's.
    cluster.processes().Supervise().IgnoreError();
    absl::SleepFor(absl::Milliseconds(50));
  }

  ASSERT_FALSE(trainer->Running());
  EXPECT_EQ(trainer->exit_code(), 1);
  EXPECT_THAT(cli::LastLines(trainer->log_path(), 3),
              AllOf(HasSubstr("lock server at " + cluster.processes().lock_server()),
                    HasSubstr(before.context().run_id())));
}

}  // namespace
}  // namespace weft
