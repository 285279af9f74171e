#include "tests/integration/train_world.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/common/random.h"

namespace weft::testing {

using nlohmann::json;

TrainWorld::TrainWorld(const Options& options) : options_(options) {
  config_ = {{"entities", {{"user", {{"num_partitions", options.num_partitions}}}}},
             {"relations", {{{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}}}},
             {"dimension", 16},
             {"comparator", "dot"},
             {"loss_fn", "softmax"},
             {"global_emb", false},
             {"lr", 0.1},
             {"num_epochs", 3},
             {"eval_fraction", 0},
             {"seed", 7},
             {"threads", 2},
             {"entity_path", "entities"},
             {"edge_paths", {"edges"}},
             {"checkpoint_path", "model"}};
  config_.update(options.config);
  EXPECT_TRUE(WriteFileAtomically(File("run.json"), config_.dump(2)).ok());
  WriteEdges();
  const ProgramResult imported = RunWeft(
      {"import", "run.json", "edges.tsv", "--lhs-col", "0", "--rel-col", "1", "--rhs-col", "2"},
      InFolder());
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  for (int p = 0; p < options.num_partitions; ++p) {
    counts_.push_back(ReadEntityCount(File("entities"), "user", p).value_or(0));
  }
}

// Entity i is connected to others near it on a ring, popular ones more often: something to learn.
void TrainWorld::WriteEdges() const {
  RandomStream random(1, RandomUse::kTest);
  std::string text;
  const auto n = options_.num_entities;
  for (int64_t e = 0; e < options_.num_edges; ++e) {
    const float u = random.Uniform();
    const auto lhs = static_cast<int64_t>(static_cast<float>(n) * u * u);
    const int64_t rhs = (lhs + 1 + random.Below(5)) % n;
    absl::StrAppend(&text, "u", lhs, "\tknows\tu", rhs, "\n");
  }
  EXPECT_TRUE(WriteFileAtomically(File("edges.tsv"), text).ok());
}

ProgramOptions TrainWorld::InFolder() const {
  ProgramOptions options;
  options.folder = dir_.path();
  return options;
}

std::vector<std::string> TrainWorld::TrainCommand(const std::vector<std::string>& arguments) const {
  std::vector<std::string> command = {WeftPath(), "train", "run.json"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

ProgramResult TrainWorld::Train(const std::vector<std::string>& arguments) const {
  return RunProgram(TrainCommand(arguments), InFolder());
}

std::string TrainWorld::CommittedVersion(const std::string& model) const {
  const auto text = ReadFile(File(model + "/checkpoint_version.txt"));
  return text.ok() ? std::string(absl::StripSuffix(*text, "\n")) : "";
}

EmbeddingPartition TrainWorld::Embeddings(int partition, int64_t version,
                                          const std::string& model) const {
  auto table = ReadEmbeddingsFile(
      File(absl::StrCat(model, "/embeddings_user_", partition, ".v", version, ".h5")),
      counts_[static_cast<size_t>(partition)], config_["dimension"].get<int64_t>());
  EXPECT_TRUE(table.ok()) << table.status();
  return table.ok() ? *std::move(table) : EmbeddingPartition();
}

std::vector<json> TrainWorld::StatsLines(const std::string& model) const {
  std::vector<json> lines;
  std::istringstream text(ReadFile(File(model + "/training_stats.json")).value_or(""));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

json TrainWorld::Json(const std::string& name) const {
  const auto text = ReadFile(File(name));
  EXPECT_TRUE(text.ok()) << text.status();
  return json::parse(text.value_or("{}"));
}

void TrainWorld::ExpectPassesAreComplete(int passes) const {
  std::map<int, int64_t> edges;
  std::map<int, std::set<std::pair<int, int>>> buckets;
  for (const json& line : StatsLines()) {
    if (!line.contains("stats")) continue;
    const int pass = line["epoch_idx"];
    EXPECT_TRUE(buckets[pass].emplace(line["lhs_partition"], line["rhs_partition"]).second)
        << "twice: " << line;
    edges[pass] += line["stats"]["count"].get<int64_t>();
    if (line.contains("eval_stats_before")) {
      edges[pass] += line["eval_stats_before"]["count"].get<int64_t>();
    }
  }
  EXPECT_EQ(static_cast<int>(edges.size()), passes);
  for (int pass = 0; pass < passes; ++pass) {
    EXPECT_EQ(edges[pass], options_.num_edges) << "pass " << pass;
  }
}

}  // namespace weft::testing
