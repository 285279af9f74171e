// Clusters of real processes over a small graph.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/train_world.h"
#include "tests/testing/local_cluster.h"

namespace weft::testing {

inline constexpr int kPartitions = 4;
inline constexpr int kEpochs = 3;

// The small graph shares nothing among trainers; a parameter server is there all the same, if
// built.
inline int NumParamServers() {
  return std::filesystem::exists(absl::StrCat(cli::ProgramFolder(), "/weft-param-server")) ? 1 : 0;
}

inline TrainWorld::Options SmallWorld(nlohmann::json config = nlohmann::json::object()) {
  TrainWorld::Options options;
  options.num_partitions = kPartitions;
  options.config = std::move(config);
  options.config.emplace("num_epochs", kEpochs);
  options.config.emplace("lease_seconds", 2);
  return options;
}

// A relation that parameter servers have something of.
inline nlohmann::json WithOperator() {
  return nlohmann::json::array({nlohmann::json(
      {{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}})});
}

inline LocalCluster::Options ClusterOf(const TrainWorld& world,
                                       const std::string& store = "rocksdb") {
  LocalCluster::Options options;
  options.config = world.File("run.json");
  options.overrides = {"entity_path=" + world.File("entities"), "edge_paths=" + world.File("edges"),
                       "checkpoint_path=" + world.File("model")};
  options.folder = world.File("cluster");
  options.store = store;
  options.param_servers = NumParamServers();
  return options;
}

// Every bucket of the pass that made the version (0: the newest) is there once, with all edges of
// the graph.
inline void ExpectLastPassIsExact(GrpcOperatorClient& lock_server, const TrainWorld& world,
                                  int64_t version) {
  const auto checkpoint = lock_server.GetCheckpoint(version);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  std::set<std::pair<int, int>> buckets;
  int64_t edges = 0;
  for (const v1::BucketReport& report : checkpoint->buckets()) {
    EXPECT_TRUE(buckets.emplace(report.bucket().lhs(), report.bucket().rhs()).second);
    edges += report.trained_edges() + report.held_out_edges();
  }
  EXPECT_EQ(edges, world.num_edges());
}
inline void ExpectLastPassIsExact(LocalCluster* cluster, const TrainWorld& world, int64_t version) {
  ExpectLastPassIsExact(cluster->lock_server(), world, version);
}

inline std::vector<std::string> TrainerCommand(const std::string& lock_server,
                                               const std::vector<std::string>& arguments = {},
                                               int patience_seconds = 2) {
  std::vector<std::string> command = {LocalCluster::Program("weft-trainer"),
                                      "--lock-server",
                                      lock_server,
                                      "--threads",
                                      "1",
                                      "--patience",
                                      absl::StrCat(patience_seconds)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

// The lines of a log in which `text` stands.
inline int LinesWith(const std::string& log, const std::string& text) {
  int lines = 0;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    lines += absl::StrContains(line, text) ? 1 : 0;
  }
  return lines;
}

// The errors of a program in its log.
inline int ErrorLines(const std::string& log, const std::string& program = "weft-trainer") {
  return LinesWith(log, absl::StrCat(" E ", program, "]"));
}

// A trainer of this name has buckets.
inline bool IsTraining(const v1::GetRunStateResponse& state, const std::string& name) {
  for (const v1::TrainerInfo& trainer : state.trainers()) {
    if (trainer.name() == name && !trainer.buckets().empty()) return true;
  }
  return false;
}

// The newest committed version, 0 if there is none.
inline int64_t NewestVersion(const v1::GetRunStateResponse& state) {
  int64_t newest = 0;
  for (const v1::ManifestInfo& manifest : state.manifests()) {
    if (manifest.committed()) newest = std::max<int64_t>(newest, manifest.version());
  }
  return newest;
}

}  // namespace weft::testing
