// A cluster whose ports are reached by those who do not belong to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/integration/cluster_world.h"
#include "tests/testing/raw_connections.h"

namespace weft {
namespace {

using ::weft::testing::BrokenStreams;
using ::weft::testing::ClusterOf;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::RawConnections;
using ::weft::testing::SmallWorld;
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

}  // namespace
}  // namespace weft
