// TrainWorld is a folder with a small generated graph, imported by the built `weft`, to train in.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "graph/checkpoint/embeddings_file.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

class TrainWorld {
 public:
  struct Options {
    int num_partitions = 1;
    int64_t num_edges = 20'000;
    int64_t num_entities = 1'000;
    nlohmann::json config = nlohmann::json::object();  // what differs from MakeConfig
  };

  // Writes run.json and the edges, and imports them. Test failures say what went wrong.
  explicit TrainWorld(const Options& options);

  std::string File(const std::string& name) const { return dir_.File(name); }
  const nlohmann::json& config() const { return config_; }
  int64_t num_edges() const { return options_.num_edges; }

  // `weft train run.json ARGUMENTS...` in this folder.
  std::vector<std::string> TrainCommand(const std::vector<std::string>& arguments = {}) const;
  ProgramResult Train(const std::vector<std::string>& arguments = {}) const;
  ProgramOptions InFolder() const;

  // Of the checkpoint folder `model`, relative to this one.
  std::string CommittedVersion(const std::string& model = "model") const;
  EmbeddingPartition Embeddings(int partition, int64_t version,
                                const std::string& model = "model") const;
  std::vector<nlohmann::json> StatsLines(const std::string& model = "model") const;
  nlohmann::json Json(const std::string& name) const;

  // Fails the test unless training_stats.json says that each of the first `passes` passes trained
  // every edge of the graph once, in buckets that do not repeat.
  void ExpectPassesAreComplete(int passes) const;

 private:
  void WriteEdges() const;

  const Options options_;
  TempDir dir_;
  nlohmann::json config_;
  std::vector<int64_t> counts_;  // entities by partition
};

}  // namespace weft::testing
