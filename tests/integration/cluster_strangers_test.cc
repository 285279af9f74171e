// A cluster that is reached by those who do not belong to it: strangers, and programs of another
// version.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/server_runner.h"
#include "services/lock_server/lock_client.h"
#include "tests/integration/cluster_world.h"
#include "tests/lock_server/fake_lock_service.h"
#include "tests/testing/raw_connections.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::BrokenStreams;
using ::weft::testing::ClusterOf;
using ::weft::testing::ErrorLines;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::FakeLockService;
using ::weft::testing::IsOk;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::ProgramResult;
using ::weft::testing::RawConnections;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainerCommand;
using ::weft::testing::TrainWorld;

TEST(ClusterStrangersTest, AThousandConnectionsAndBrokenStreamsDoNotStopTraining) {
  constexpr int kConnections = 1'000;
  const TrainWorld world(SmallWorld({{"num_epochs", 10'000}}));
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  const v1::GetRunStateResponse state = cluster.Await(
      "a version", [](const v1::GetRunStateResponse& now) { return NewestVersion(now) >= 1; });
  std::vector<std::string> servers = {cluster.processes().lock_server()};
  for (const v1::ServerInfo& server : state.servers().partition_servers()) {
    servers.push_back(server.address());
  }
  const std::vector<std::string> broken = BrokenStreams();

  RawConnections strangers;
  for (int i = 0; i < kConnections && !HasFatalFailure(); ++i) {
    const bool silent = i % 2 == 0;
    strangers.Open(servers[static_cast<size_t>(i) % servers.size()],
                   silent ? "" : broken[static_cast<size_t>(i) % broken.size()]);
  }

  const int64_t version = NewestVersion(*cluster.lock_server().GetRunState(false));
  const v1::GetRunStateResponse later = cluster.Await(
      "more versions",
      [&](const v1::GetRunStateResponse& now) { return NewestVersion(now) >= version + 3; });
  EXPECT_EQ(later.context().generation(), state.context().generation());
  EXPECT_EQ(later.context().term(), state.context().term()) << "the lock server has restarted";
  ExpectLastPassIsExact(&cluster, world, 0);
  // All of them are sent away, the silent ones when the time for their handshake is over.
  EXPECT_EQ(strangers.AwaitEnds(absl::Minutes(1)), 0u);
}

// The trainer's own lock server is one that passes its registration on, as a trainer of another
// version would send it.
TEST(ClusterStrangersTest, ATrainerOfAnotherVersionIsToldBothVersionsByRoleAndAddress) {
  const TrainWorld world(SmallWorld());
  LocalCluster::Options options = ClusterOf(world);
  options.trainers = 0;
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  const auto channel = MakeChannel(cluster.processes().lock_server(), Role::kLockServer, {});
  ASSERT_THAT(channel, IsOk());
  const auto lock_server = v1::LockService::NewStub(*channel);
  const auto train = [&](uint32_t protocol, uint32_t algorithm) {
    FakeLockService between;
    between.on_register = [&](const v1::RegisterRequest& request, v1::RegisterResponse* response) {
      v1::RegisterRequest other = request;
      other.set_protocol_version(request.protocol_version() + protocol);
      other.set_algorithm_version(request.algorithm_version() + algorithm);
      grpc::ClientContext context;
      return FromGrpcStatus(lock_server->Register(&context, other, response));
    };
    const auto server = ServerRunner::Start({}, {&between});
    EXPECT_THAT(server, IsOk());
    const std::string address = (*server)->address();

    const ProgramResult trainer = RunProgram(TrainerCommand(address), world.InFolder());

    EXPECT_EQ(trainer.exit_code, 1);
    EXPECT_THAT(trainer.err,
                AllOf(HasSubstr("lock server at " + address),
                      HasSubstr(absl::StrCat("has protocol version ", kProtocolVersion + protocol,
                                             " and algorithm version ",
                                             kAlgorithmVersion + algorithm, "; the run has ",
                                             kProtocolVersion, " and ", kAlgorithmVersion))));
    EXPECT_EQ(ErrorLines(trainer.err), 1) << trainer.err;
  };

  train(1, 0);
  train(0, 1);

  const auto state = cluster.lock_server().GetRunState(false);
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->trainers_size(), 0);
}

}  // namespace
}  // namespace weft
