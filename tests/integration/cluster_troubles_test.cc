// Clusters in bad times: who is not there yet, who will never be reached, what can never work, and
// disks that are missing. Everybody says in one line what is wrong, and goes on as soon as
// it can.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/cluster_world.h"
#include "tests/testing/free_port.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ErrorLines;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::FreePort;
using ::weft::testing::kEpochs;
using ::weft::testing::LinesWith;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::NumParamServers;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunningProgram;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainerCommand;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;
using ::weft::testing::WithOperator;

using Program = std::unique_ptr<RunningProgram>;

// The processes of a cluster, started by hand in any order. The address of the lock server is known
// before there is one.
class ByHand {
 public:
  explicit ByHand(const TrainWorld& world) : world_(world) {
    GrpcOperatorClient::Options options;
    options.address = address_;
    options.retry.patience = absl::Milliseconds(200);  // it may not be there
    auto client = GrpcOperatorClient::Create(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    if (client.ok()) client_ = *std::move(client);
  }

  const std::string& lock_server() const { return address_; }
  GrpcOperatorClient& client() { return *client_; }

  Program LockServer(const std::string& folder = "lock-server") const {
    return Start({LocalCluster::Program("weft-lock-server"), "--config", "run.json", "--listen",
                  address_, "--param-servers", absl::StrCat(NumParamServers()), "--data-dir",
                  world_.File(folder)});
  }
  Program PartitionServer(const std::string& folder = "partition-server",
                          const std::vector<std::string>& flags = {}) const {
    return Start({LocalCluster::Program("weft-partition-server"), "--lock-server", address_,
                  "--data-dir", world_.File(folder)},
                 flags);
  }
  Program ParamServer(const std::vector<std::string>& flags = {}) const {
    return Start({LocalCluster::Program("weft-param-server"), "--lock-server", address_,
                  "--data-dir", world_.File("param-server")},
                 flags);
  }
  Program Trainer() const { return Start(TrainerCommand(address_, {}, 60)); }

  // Waits for a state of the run; fails the test when it takes too long.
  v1::GetRunStateResponse Await(const LocalCluster::Condition& condition) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    absl::StatusOr<v1::GetRunStateResponse> state;
    do {
      state = client_->GetRunState(false);
      if (state.ok() && condition(*state)) return *state;
      absl::SleepFor(absl::Milliseconds(20));
    } while (absl::Now() < deadline);
    ADD_FAILURE() << "waited in vain: " << state.status();
    return {};
  }

 private:
  Program Start(std::vector<std::string> command,
                const std::vector<std::string>& flags = {}) const {
    command.insert(command.end(), flags.begin(), flags.end());
    return std::make_unique<RunningProgram>(command, world_.InFolder());
  }

  const TrainWorld& world_;
  const std::string address_ = absl::StrCat("127.0.0.1:", FreePort());
  std::unique_ptr<GrpcOperatorClient> client_;
};

// Waits until the program has said this; fails the test when it ends without it.
void AwaitSaid(RunningProgram* program, const std::string& what) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  for (bool runs = true; !absl::StrContains(program->err(), what); runs = program->running()) {
    ASSERT_TRUE(runs && absl::Now() < deadline) << what << "\n" << program->err();
    absl::SleepFor(absl::Milliseconds(20));
  }
}

TEST(ClusterTroublesTest, WhoComesBeforeTheLockServerSaysSoInOneLineAndJoins) {
  const TrainWorld world(SmallWorld());
  ByHand cluster(world);
  const Program partitions = cluster.PartitionServer();
  const Program params = NumParamServers() > 0 ? cluster.ParamServer() : nullptr;
  const Program trainer = cluster.Trainer();
  const std::string silent = "lock server does not answer: address=" + cluster.lock_server();
  AwaitSaid(partitions.get(), silent);
  if (params != nullptr) AwaitSaid(params.get(), silent);
  AwaitSaid(trainer.get(), "waiting for the lock server: address=" + cluster.lock_server());

  const Program lock_server = cluster.LockServer();
  const ProgramResult trained = trainer->Wait();

  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  ExpectLastPassIsExact(cluster.client(), world, kEpochs);
  for (const RunningProgram* server : {partitions.get(), params.get()}) {
    if (server == nullptr) continue;
    EXPECT_EQ(LinesWith(server->err(), silent), 1) << server->err();
    EXPECT_THAT(server->err(), HasSubstr("lock server is there again"));
  }
}

TEST(ClusterTroublesTest, ATrainerThatComesBeforeTheOtherServersJoinsOnceTheyCome) {
  const TrainWorld world(SmallWorld());
  ByHand cluster(world);
  const Program lock_server = cluster.LockServer();
  const Program trainer = cluster.Trainer();
  cluster.Await([](const v1::GetRunStateResponse& state) { return state.trainers_size() == 1; });
  AwaitSaid(trainer.get(), "waits for servers: ");
  EXPECT_THAT(trainer->err(), HasSubstr("no partition server is there"));

  const Program partitions = cluster.PartitionServer();
  const Program params = NumParamServers() > 0 ? cluster.ParamServer() : nullptr;
  const ProgramResult trained = trainer->Wait();

  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  ExpectLastPassIsExact(cluster.client(), world, kEpochs);
}

TEST(ClusterTroublesTest, AFolderThatCannotBeMadeIsNamed) {
  const TrainWorld world(SmallWorld());
  const std::string folder = world.File("run.json/below/a/file");
  for (const std::string program :
       {"weft-lock-server", "weft-partition-server", "weft-param-server"}) {
    if (program == "weft-param-server" && NumParamServers() == 0) continue;
    SCOPED_TRACE(program);
    std::vector<std::string> command = {LocalCluster::Program(program), "--data-dir", folder};
    if (program == "weft-lock-server") {
      command.insert(command.end(), {"--config", "run.json"});
    } else {
      command.insert(command.end(), {"--lock-server", "127.0.0.1:1"});
    }

    const ProgramResult result = RunProgram(command, world.InFolder());

    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr(folder), HasSubstr("Not a directory")));
    EXPECT_EQ(ErrorLines(result.err, program), 1) << result.err;
  }
}

// A cluster one of whose servers says that it is reached where nobody is.
LocalCluster::Options WithUnreachable(const std::string& server, LocalCluster::Options options) {
  options.trainers = 0;
  options.partition_servers = 1;
  options.on_launch = [server](const std::string& name, std::vector<std::string>* arguments) {
    if (name == server) arguments->insert(arguments->end(), {"--advertise", "127.0.0.1:1"});
  };
  return options;
}

TEST(ClusterTroublesTest, APartitionServerThatNobodyReachesIsNamedWithTheCause) {
  const TrainWorld world(SmallWorld());
  LocalCluster cluster(WithUnreachable("partition-server-0", ClusterOf(world)));
  ASSERT_TRUE(cluster.ok());

  const ProgramResult trainer =
      RunProgram(TrainerCommand(cluster.processes().lock_server()), world.InFolder());

  EXPECT_EQ(trainer.exit_code, 1);
  EXPECT_THAT(trainer.err,
              AllOf(HasSubstr("partition server at 127.0.0.1:1"), HasSubstr("onnect")));
  EXPECT_EQ(ErrorLines(trainer.err), 1) << trainer.err;
}

TEST(ClusterTroublesTest, AParameterServerThatNobodyReachesIsNamedWithTheCause) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  const TrainWorld world(SmallWorld({{"relations", WithOperator()}}));
  LocalCluster cluster(WithUnreachable("param-server-0", ClusterOf(world)));
  ASSERT_TRUE(cluster.ok());

  const ProgramResult trainer =
      RunProgram(TrainerCommand(cluster.processes().lock_server()), world.InFolder());

  EXPECT_EQ(trainer.exit_code, 1);
  EXPECT_THAT(trainer.err,
              AllOf(HasSubstr("parameter server 0 at 127.0.0.1:1"), HasSubstr("onnect")));
  EXPECT_EQ(ErrorLines(trainer.err), 1) << trainer.err;
}

TEST(ClusterTroublesTest, ARewindThatCannotReadItsSnapshotsSaysWhatIsMissingAndWhere) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  const TrainWorld world(SmallWorld({{"num_epochs", 10'000}, {"relations", WithOperator()}}));
  ByHand cluster(world);
  const Program lock_server = cluster.LockServer();
  Program partitions = cluster.PartitionServer();
  Program params = cluster.ParamServer({"--store", "memory"});
  {
    const Program trainer = cluster.Trainer();
    cluster.Await([](const v1::GetRunStateResponse& state) { return NewestVersion(state) >= 1; });
  }
  partitions->Signal(SIGTERM);
  ASSERT_EQ(partitions->Wait().exit_code, 0) << partitions->err();
  partitions = cluster.PartitionServer("partition-server", {"--advertise", "127.0.0.1:1"});
  cluster.Await([](const v1::GetRunStateResponse& state) {
    return state.servers().partition_servers(0).address() == "127.0.0.1:1";
  });

  params->Signal(SIGKILL);
  params->Wait();
  params = cluster.ParamServer({"--store", "memory"});
  const Program trainer = cluster.Trainer();

  AwaitSaid(trainer.get(), "partition server at 127.0.0.1:1");
  EXPECT_THAT(trainer->err(),
              AllOf(HasSubstr("waits for servers: the parameter server at 127.0.0.1:"),
                    HasSubstr("onnect")));
}

TEST(ClusterTroublesTest, OnePartitionAndTwoTrainersTrainToTheEnd) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  TrainWorld::Options shape = SmallWorld();
  shape.num_partitions = 1;
  const TrainWorld world(shape);
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());

  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  ExpectLastPassIsExact(&cluster, world, kEpochs);
  const ProgramResult pulled = RunProgram(
      {WeftPath(), "checkpoint", "pull", cluster.processes().lock_server(), "-o", "pulled"},
      world.InFolder());
  ASSERT_EQ(pulled.exit_code, 0) << pulled.err;
  const ProgramResult eval =
      RunProgram({WeftPath(), "eval", "run.json", "--set", "checkpoint_path=pulled", "--edges",
                  "edges", "--json", "eval.json"},
                 world.InFolder());
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_GT(world.Json("eval.json")["raw"]["mrr"].get<double>(), 0.05);
}

TEST(ClusterTroublesTest, WhatFitsIntoNoMemoryIsRefusedBeforeAnyIsTaken) {
  // Batches alone would take terabytes.
  const TrainWorld world(SmallWorld({{"dimension", 1'000'000}, {"batch_size", 100'000}}));
  LocalCluster::Options options = ClusterOf(world);
  options.trainers = 0;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());

  const ProgramResult trainer =
      RunProgram(TrainerCommand(cluster.processes().lock_server()), world.InFolder());

  EXPECT_EQ(trainer.exit_code, 1);
  EXPECT_THAT(trainer.err, AllOf(HasSubstr("training needs about"), HasSubstr("GB are available")));
  EXPECT_EQ(ErrorLines(trainer.err), 1) << trainer.err;
  EXPECT_LT(trainer.peak_memory_bytes, int64_t{1} << 30);
  const auto state = cluster.lock_server().GetRunState(false);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->trainers_size(), 0) << "it has left";
}

TEST(ClusterTroublesTest, OfTwoServersWithOneStoreTheOlderEndsAndSaysWhy) {
  const TrainWorld world(SmallWorld());
  ByHand cluster(world);
  const Program lock_server = cluster.LockServer();
  Program older = cluster.PartitionServer("store");
  const auto registered = [&](uint64_t other_than) {
    const v1::GetRunStateResponse state = cluster.Await([&](const v1::GetRunStateResponse& now) {
      return now.servers().partition_servers_size() == 1 &&
             now.servers().partition_servers(0).incarnation() != other_than;
    });
    return state.servers().partition_servers_size() == 0
               ? 0
               : state.servers().partition_servers(0).incarnation();
  };
  const uint64_t first = registered(0);
  older->Signal(SIGTERM);
  ASSERT_EQ(older->Wait().exit_code, 0) << older->err();
  std::filesystem::copy(world.File("store"), world.File("copy"),
                        std::filesystem::copy_options::recursive);
  older = cluster.PartitionServer("store");
  const uint64_t second = registered(first);

  const Program newer = cluster.PartitionServer("copy");
  const ProgramResult ended = older->Wait();

  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, HasSubstr("a newer process of the partition server at"));
  EXPECT_EQ(ErrorLines(ended.err, "weft-partition-server"), 1) << ended.err;
  EXPECT_NE(registered(second), 0u);
  EXPECT_TRUE(newer->running()) << newer->err();
}

TEST(ClusterTroublesTest, AParameterServerOfAnotherRunEndsAndNamesBoth) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  const TrainWorld world(SmallWorld());
  ByHand cluster(world);
  const auto has_param_server = [](const v1::GetRunStateResponse& state) {
    return state.servers().param_servers_size() == 1;
  };
  Program lock_server = cluster.LockServer("one");
  Program params = cluster.ParamServer();
  const std::string one = cluster.Await(has_param_server).context().run_id();
  params->Signal(SIGTERM);
  ASSERT_EQ(params->Wait().exit_code, 0) << params->err();
  lock_server->Signal(SIGTERM);
  ASSERT_EQ(lock_server->Wait().exit_code, 0) << lock_server->err();

  lock_server = cluster.LockServer("another");
  params = cluster.ParamServer();
  const ProgramResult ended = params->Wait();

  EXPECT_EQ(ended.exit_code, 1);
  // Its own client is of the run before.
  GrpcOperatorClient::Options options;
  options.address = cluster.lock_server();
  const auto client = GrpcOperatorClient::Create(std::move(options));
  ASSERT_TRUE(client.ok()) << client.status();
  const auto state = (*client)->GetRunState(false);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_NE(state->context().run_id(), one);
  EXPECT_THAT(ended.err, AllOf(HasSubstr(one), HasSubstr(state->context().run_id())));
  EXPECT_EQ(ErrorLines(ended.err, "weft-param-server"), 1) << ended.err;
}

}  // namespace
}  // namespace weft
