// Clusters whose partition servers hold the edges: nobody but the importer has a folder of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/edge_upload.h"
#include "graph/dataset_manifest.h"
#include "services/common/edge_chunk.h"
#include "services/common/file_util.h"
#include "services/common/run_config.h"
#include "tests/integration/train_world.h"
#include "tests/testing/local_cluster.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::LocalCluster;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunProgram;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;

constexpr int kEpochs = 2;
constexpr int kChunks = 2;

int NumParamServers() {
  return std::filesystem::exists(absl::StrCat(cli::ProgramFolder(), "/weft-param-server")) ? 1 : 0;
}

// Imported on this machine; no cluster has the edges yet.
TrainWorld::Options ClusterWorld() {
  TrainWorld::Options options;
  options.num_partitions = 4;
  options.config = {
      {"edge_paths", {"cluster://train"}}, {"num_epochs", kEpochs}, {"eval_fraction", 0.1},
      {"num_edge_chunks", kChunks},        {"commit_seconds", 0},   {"lease_seconds", 2}};
  return options;
}

// Its processes know no folder of entities or edges.
LocalCluster::Options ClusterOf(const TrainWorld& world, const std::string& store = "rocksdb") {
  LocalCluster::Options options;
  options.config = world.File("run.json");
  options.overrides = {"entity_path=/nowhere/entities", "checkpoint_path=" + world.File("model")};
  options.folder = world.File("cluster");
  options.store = store;
  options.param_servers = NumParamServers();
  return options;
}

ProgramResult Import(const TrainWorld& world, const std::string& lock_server,
                     std::vector<std::string> more = {}) {
  std::vector<std::string> command = {WeftPath(),  "import", "run.json",  "edges.tsv",
                                      "--lhs-col", "0",      "--rel-col", "1",
                                      "--rhs-col", "2",      "--to",      lock_server};
  command.insert(command.end(), more.begin(), more.end());
  return RunProgram(command, world.InFolder());
}

void AwaitMissingEdges(LocalCluster* cluster) {
  const v1::GetRunStateResponse waits =
      cluster->Await("the run waits for its edges", [](const v1::GetRunStateResponse& state) {
        return state.missing_edges_size() > 0 && state.servers().partition_servers_size() == 2;
      });
  EXPECT_EQ(waits.phase(), v1::RUN_PHASE_PREPARING);
}

// The edges of the last chunk, as the importer's manifest has them.
int64_t EdgesOfLastChunk(const TrainWorld& world) {
  const auto manifest = ReadManifest(world.File("entities/edges/train"));
  EXPECT_THAT(manifest, IsOk());
  int64_t edges = 0;
  int64_t all = 0;
  for (const DatasetManifest::BucketCount& bucket : manifest->buckets) {
    edges += EdgeChunkRange(bucket.edges, kChunks - 1, kChunks).size();
    all += bucket.edges;
  }
  EXPECT_EQ(all, world.num_edges());
  return edges;
}

// Every bucket of the pass that made the last version is there once, with all its edges.
void ExpectLastPassIsExact(LocalCluster* cluster, int64_t expected_edges) {
  const auto checkpoint = cluster->lock_server().GetCheckpoint(kEpochs * kChunks);
  ASSERT_THAT(checkpoint, IsOk());
  std::set<std::pair<int, int>> buckets;
  int64_t edges = 0;
  int64_t held_out = 0;
  for (const v1::BucketReport& report : checkpoint->buckets()) {
    EXPECT_TRUE(buckets.emplace(report.bucket().lhs(), report.bucket().rhs()).second);
    edges += report.trained_edges() + report.held_out_edges();
    held_out += report.held_out_edges();
  }
  EXPECT_EQ(edges, expected_edges);
  EXPECT_GT(held_out, 0);
  EXPECT_EQ(checkpoint->manifest().position().epoch(), kEpochs);
}

class ClusterEdgesStoreTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ClusterEdgesStoreTest, ARunWaitsForItsEdgesAndTrainsThemToTheEdge) {
  const TrainWorld world(ClusterWorld());
  LocalCluster cluster(ClusterOf(world, GetParam()));
  ASSERT_TRUE(cluster.ok());
  AwaitMissingEdges(&cluster);
  const std::string address = cluster.processes().lock_server();
  EXPECT_THAT(RunProgram({WeftPath(), "status", address}, world.InFolder()).out,
              HasSubstr("waits for the edges of cluster://train"));

  const ProgramResult import = Import(world, address);
  ASSERT_EQ(import.exit_code, 0) << import.out << import.err << cluster.Logs();
  EXPECT_THAT(import.out, HasSubstr("brought 20,000 edges in 16 buckets"));
  const int64_t last_chunk = EdgesOfLastChunk(world);
  std::filesystem::remove_all(world.File("entities"));
  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  EXPECT_EQ(end.context().generation(), 1u);
  EXPECT_EQ(end.epoch_edges(), world.num_edges());
  ExpectLastPassIsExact(&cluster, last_chunk);
  EXPECT_THAT(cluster.Logs(), HasSubstr("the run waits for the edges of cluster://train"));
}

INSTANTIATE_TEST_SUITE_P(Stores, ClusterEdgesStoreTest, ::testing::Values("rocksdb", "memory"));

TEST(ClusterEdgesTest, TrainersOutwaitTheirPatienceForTheEdges) {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  const TrainWorld world(ClusterWorld());
  LocalCluster::Options options = ClusterOf(world);
  options.on_launch = [&](const std::string& name, std::vector<std::string>* arguments) {
    if (!absl::StartsWith(name, "trainer")) return;
    arguments->push_back("--patience");
    arguments->push_back(absl::StrCat(absl::ToInt64Seconds(kPatience)));
  };
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  cli::ChildProcess* const trainer = cluster.processes().Find("trainer-0");
  const auto waits = [&] {
    return absl::StrContains(cli::LastLines(trainer->log_path(), 5),
                             "the run waits for the edges of cluster://train");
  };
  cluster.Await("a trainer that waits", [&](const auto&) { return waits(); });

  const absl::Time asked = absl::Now();
  cluster.Await("more than its patience",
                [&](const auto&) { return absl::Now() > asked + kPatience + absl::Seconds(1); });

  EXPECT_TRUE(trainer->Running()) << cluster.Logs();
  ASSERT_EQ(Import(world, cluster.processes().lock_server()).exit_code, 0) << cluster.Logs();
  cluster.AwaitEnd();
  ExpectLastPassIsExact(&cluster, EdgesOfLastChunk(world));
}

TEST(ClusterEdgesTest, APartitionServerThatIsKilledDuringTheImportLosesNothing) {
  const TrainWorld world(ClusterWorld());
  LocalCluster::Options options = ClusterOf(world, "memory");
  LocalCluster cluster(options);
  ASSERT_TRUE(cluster.ok());
  AwaitMissingEdges(&cluster);
  const auto config = LoadRunConfig(
      world.File("run.json"), std::vector<std::string>{"entity_path=" + world.File("entities")});
  ASSERT_THAT(config, IsOk());

  CancelFlag brought_some;
  CancelFlag killed;
  CancelFlag cancel;
  cli::EdgeUploadOptions upload;
  upload.on_progress = [&](int64_t edges, int64_t all) {
    if (edges < all / 4) return;
    brought_some.Cancel();
    killed.Wait();
  };
  GrpcOperatorClient::Options lock;
  lock.address = cluster.processes().lock_server();
  const auto lock_server = GrpcOperatorClient::Create(std::move(lock));
  ASSERT_THAT(lock_server, IsOk());
  absl::StatusOr<cli::EdgeUpload> uploaded = absl::UnknownError("not done");
  std::thread importer([&] {
    uploaded = cli::UploadEdges(lock_server->get(), config->config, upload, &cancel);
    brought_some.Cancel();
  });
  brought_some.Wait();
  cluster.processes().Find("partition-server-0")->Signal(SIGKILL);
  killed.Cancel();
  cluster.Await("the run begins", [](const v1::GetRunStateResponse& state) {
    return state.phase() == v1::RUN_PHASE_RUNNING || state.phase() == v1::RUN_PHASE_DONE;
  });
  importer.join();

  ASSERT_THAT(uploaded, IsOk());
  EXPECT_EQ(uploaded->edges, world.num_edges());
  cluster.AwaitEnd();
  ExpectLastPassIsExact(&cluster, EdgesOfLastChunk(world));
}

TEST(ClusterEdgesTest, ServersThatAreKilledComeBackWithThem) {
  const TrainWorld world(ClusterWorld());
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  AwaitMissingEdges(&cluster);
  cluster.processes().Find("lock-server")->Signal(SIGKILL);
  const std::string address = cluster.processes().lock_server();
  cluster.Await("the lock server is there again",
                [](const v1::GetRunStateResponse& state) { return state.context().term() == 2; });
  ASSERT_EQ(Import(world, address).exit_code, 0) << cluster.Logs();
  cluster.Await("training", [](const v1::GetRunStateResponse& state) {
    return state.position().epoch() > 0 || state.buckets_done() > 1;
  });

  for (const char* server : {"lock-server", "partition-server-1"}) {
    cluster.processes().Find(server)->Signal(SIGKILL);
  }
  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.context().generation(), 1u);
  ExpectLastPassIsExact(&cluster, EdgesOfLastChunk(world));
}

TEST(ClusterEdgesTest, TheSameImportIsThereAndAnotherIsRefused) {
  const TrainWorld world(ClusterWorld());
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  AwaitMissingEdges(&cluster);
  const std::string address = cluster.processes().lock_server();
  ASSERT_EQ(Import(world, address).exit_code, 0) << cluster.Logs();
  const int64_t last_chunk = EdgesOfLastChunk(world);

  const ProgramResult again = Import(world, address);
  std::ofstream(world.File("edges.tsv"), std::ios::app) << "u1\tknows\tu2\n";
  const ProgramResult other = Import(world, address, {"--force"});

  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("has these edges already"));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr("the run has other edges in cluster://train, and keeps them"));
  cluster.AwaitEnd();
  ExpectLastPassIsExact(&cluster, last_chunk);
}

TEST(ClusterEdgesTest, NamesStayWithTheImporterAndFitWhatIsPulled) {
  TrainWorld::Options shape = ClusterWorld();
  shape.config["num_epochs"] = 5;
  const TrainWorld world(shape);
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  AwaitMissingEdges(&cluster);
  const std::string address = cluster.processes().lock_server();
  ASSERT_EQ(Import(world, address).exit_code, 0) << cluster.Logs();
  cluster.AwaitEnd();
  const ProgramResult pull =
      RunProgram({WeftPath(), "checkpoint", "pull", address, "-o", "pulled"}, world.InFolder());
  ASSERT_EQ(pull.exit_code, 0) << pull.err;
  std::vector<std::string> lines =
      absl::StrSplit(ReadFile(world.File("edges.tsv")).value_or(""), '\n', absl::SkipEmpty());
  std::ranges::reverse(lines);
  ASSERT_THAT(WriteFileAtomically(world.File("reversed.tsv"), absl::StrJoin(lines, "\n")), IsOk());
  const ProgramResult reversed =
      RunProgram({WeftPath(), "import", "run.json", "reversed.tsv", "--lhs-col", "0", "--rel-col",
                  "1", "--rhs-col", "2", "--set", "entity_path=others"},
                 world.InFolder());
  ASSERT_EQ(reversed.exit_code, 0) << reversed.err;
  const auto neighbors = [&](const std::vector<std::string>& more) {
    std::vector<std::string> command = {WeftPath(), "neighbors", "pulled", "--entity", "u10"};
    command.insert(command.end(), more.begin(), more.end());
    return RunProgram(command, world.InFolder());
  };

  const ProgramResult unnamed = neighbors({});
  const ProgramResult others = neighbors({"--entities", "others"});
  const ProgramResult named = neighbors({"--entities", "entities", "--json", "near.json"});

  EXPECT_EQ(unnamed.exit_code, 1);
  EXPECT_THAT(unnamed.err, HasSubstr("name that folder with --entities"));
  EXPECT_EQ(others.exit_code, 1);
  EXPECT_THAT(others.err, HasSubstr("others: holds other names or in another order"));
  ASSERT_EQ(named.exit_code, 0) << named.err;
  // On the ring of entities those are near that have edges with each other.
  int near = 0;
  const nlohmann::json report = world.Json("near.json");
  for (const nlohmann::json& neighbor : report["neighbors"]) {
    const int number = std::stoi(neighbor["entity"].get<std::string>().substr(1));
    near += number < 40 ? 1 : 0;
  }
  EXPECT_GE(near, 5) << named.out << "of ten, in a thousand";
}

TEST(ClusterEdgesTest, ClusterUpTakesWhatWasImportedOnItsMachine) {
  const TrainWorld world(ClusterWorld());

  const ProgramResult up = RunProgram({WeftPath(), "cluster", "up", "run.json", "--threads", "1",
                                       "--param-servers", absl::StrCat(NumParamServers())},
                                      world.InFolder());

  ASSERT_EQ(up.exit_code, 0) << up.out << up.err;
  EXPECT_THAT(up.err, HasSubstr("brings the edges of cluster://train"));
  EXPECT_EQ(world.CommittedVersion(), absl::StrCat(kEpochs * kChunks));
}

TEST(ClusterEdgesTest, OneMachineSaysThatItCannotTrainThem) {
  const TrainWorld world(ClusterWorld());

  const ProgramResult train = world.Train();
  const ProgramResult import =
      RunProgram({WeftPath(), "import", "run.json", "edges.tsv", "--lhs-col", "0", "--rhs-col", "2",
                  "--to", "127.0.0.1:1", "--set", "edge_paths=edges"},
                 world.InFolder());

  EXPECT_EQ(train.exit_code, 1);
  EXPECT_THAT(train.err, HasSubstr("cluster://train: only a cluster trains on edges"));
  EXPECT_EQ(import.exit_code, 2);
  EXPECT_THAT(import.err, HasSubstr("--to is for edge_paths that a cluster holds"));
}

}  // namespace
}  // namespace weft
