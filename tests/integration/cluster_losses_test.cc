// Clusters whose servers lose something: the room on their disk, or all that they had. The run goes
// on, and goes back to nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "tests/integration/cluster_world.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ErrorLines;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::IsOk;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::NumParamServers;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainWorld;
using ::weft::testing::WithOperator;

struct FullDisk {
  std::string server;
  std::string program;
  std::string database;  // in its folder
  nlohmann::json config;
};

// The server's disk is full in the middle of a run, and still is when it is started again. It ends
// with one error that names the file and the cause, and goes on once there is room.
void TrainOnAFullDisk(const FullDisk& full) {
  constexpr int kEpochs = 10;
  constexpr int kStartsInVain = 2;
  // To a process whose files may not grow any more its disk is full. It is told by an error then,
  // as by a disk; without this also by a signal that would end it.
  signal(SIGXFSZ, SIG_IGN);
  nlohmann::json config = full.config;
  config["num_epochs"] = kEpochs;
  config["commit_seconds"] = 0;
  const TrainWorld world(SmallWorld(config));
  LocalCluster::Options options = ClusterOf(world);
  options.restart_failed_servers = true;
  std::vector<std::string> events;
  options.on_event = [&](const std::string& event) { events.push_back(event); };
  int starts = 0;
  options.on_launch = [&](const std::string& name, std::vector<std::string>* arguments) {
    if (name != full.server) return;
    const bool in_vain = starts > 0 && starts <= kStartsInVain;
    ++starts;
    if (in_vain) arguments->insert(arguments->begin(), {"/usr/bin/prlimit", "--fsize=4096"});
  };
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  const v1::GetRunStateResponse before =
      cluster.Await("the second epoch", [](const v1::GetRunStateResponse& state) {
        return state.position().epoch() > 0 && state.buckets_done() > 1;
      });
  const pid_t trainer = cluster.processes().Find("trainer-0")->pid();
  cli::ChildProcess* const server = cluster.processes().Find(full.server);
  const std::string log = server->log_path();

  // There is room for some lines in its log, and less in its database.
  rlimit limit = {};
  ASSERT_EQ(prlimit(server->pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
  limit.rlim_cur = std::filesystem::file_size(log) + 4096;
  ASSERT_EQ(prlimit(server->pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
  const v1::GetRunStateResponse after =
      cluster.Await("the server is there again", [&](const v1::GetRunStateResponse& state) {
        return starts > 1 + kStartsInVain && state.buckets_done() > 0;
      });
  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  ASSERT_EQ(events.size(), size_t{1 + kStartsInVain}) << cluster.Logs();
  for (const std::string& event : events) {
    EXPECT_THAT(event, HasSubstr(full.server + " has ended with exit code 1"));
  }
  const std::string database = absl::StrCat(options.folder, "/", full.server, "/", full.database);
  EXPECT_THAT(events[0], AllOf(HasSubstr(database), HasSubstr("File too large")));
  EXPECT_EQ(ErrorLines(events[0], full.program), 1) << events[0];
  EXPECT_GE(after.position().pass_id(), before.position().pass_id());
  EXPECT_EQ(end.context().generation(), 1u);
  EXPECT_EQ(cluster.processes().Find("trainer-0")->pid(), trainer) << "it has outlived the gap";
  ExpectLastPassIsExact(&cluster, world, kEpochs);
}

TEST(ClusterLossesTest, ALockServerWhoseDiskIsFullEndsAndGoesOnWhenThereIsRoom) {
  TrainOnAFullDisk({"lock-server", "weft-lock-server", "run", nlohmann::json::object()});
}

TEST(ClusterLossesTest, AParameterServerWhoseDiskIsFullEndsAndGoesOnWhenThereIsRoom) {
  if (NumParamServers() == 0) GTEST_SKIP() << "weft-param-server is not built";
  TrainOnAFullDisk(
      {"param-server-0", "weft-param-server", "params", {{"relations", WithOperator()}}});
}

// The stores at an address, those of before too.
std::set<uint64_t> StoresAt(const v1::GetRunStateResponse& state, const std::string& address) {
  std::set<uint64_t> stores;
  for (const v1::ServerInfo& server : state.servers().partition_servers()) {
    if (server.address() == address) stores.insert(server.store_id());
  }
  return stores;
}

// Every shard lies at so many stores, those that are gone not counted.
bool LieAt(const google::protobuf::RepeatedPtrField<v1::VersionInfo>& versions, size_t replicas,
           const std::set<uint64_t>& gone) {
  for (const v1::VersionInfo& version : versions) {
    for (const v1::ShardInfo& shard : version.shards()) {
      std::set<uint64_t> stores;
      for (const v1::Place& place : shard.places()) {
        if (!gone.contains(place.store_id())) stores.insert(place.store_id());
      }
      if (stores.size() < replicas) return false;
    }
  }
  return true;
}

TEST(ClusterLossesTest, WithTwoReplicasServersLoseAllThatTheyHadOneByOneAndNothingIsLost) {
  constexpr int kServers = 3;
  constexpr size_t kReplicas = 2;
  const TrainWorld world(SmallWorld(
      {{"num_epochs", 100'000}, {"partition_replicas", kReplicas}, {"store_lost_after", 3}}));
  LocalCluster::Options options = ClusterOf(world);
  options.partition_servers = kServers;
  std::set<std::string> losing;  // the folder, before the next start
  options.on_launch = [&](const std::string& name, std::vector<std::string>*) {
    if (losing.erase(name) > 0) std::filesystem::remove_all(options.folder + "/" + name);
  };
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  // One that stays: what comes later is stored at those who are there.
  int64_t kept = 0;
  cluster.Await("a version", [&](const v1::GetRunStateResponse& state) {
    kept = NewestVersion(state);
    return kept > 0 && cluster.lock_server().Preserve(kept, true).ok();
  });

  std::set<uint64_t> gone;
  for (int i = 0; i < kServers && !::testing::Test::HasFailure(); ++i) {
    const std::string name = absl::StrCat("partition-server-", i);
    SCOPED_TRACE(name);
    const auto told = ReadFile(options.folder + "/addresses/" + name);
    ASSERT_THAT(told, IsOk());
    const std::string address(absl::StripAsciiWhitespace(*told));
    const v1::GetRunStateResponse before = *cluster.lock_server().GetRunState(false);
    for (const uint64_t store : StoresAt(before, address)) gone.insert(store);

    losing.insert(name);
    cluster.processes().Find(name)->Signal(SIGKILL);
    cluster.Await("another store in its place", [&](const v1::GetRunStateResponse& state) {
      return StoresAt(state, address).size() > StoresAt(before, address).size();
    });
    cluster.Await("two replicas of everything", [&](const v1::GetRunStateResponse&) {
      const auto checkpoint = cluster.lock_server().GetCheckpoint(kept);
      EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
      return !checkpoint.ok() || (LieAt(checkpoint->partitions(), kReplicas, gone) &&
                                  LieAt(checkpoint->snapshots(), kReplicas, gone));
    });
  }

  const v1::GetRunStateResponse state = *cluster.lock_server().GetRunState(false);
  EXPECT_EQ(gone.size(), size_t{kServers});
  EXPECT_EQ(state.context().generation(), 1u) << "the run has gone back";
  EXPECT_GT(NewestVersion(state), kept);
  ExpectLastPassIsExact(&cluster, world, kept);
  ExpectLastPassIsExact(&cluster, world, 0);
}

}  // namespace
}  // namespace weft
