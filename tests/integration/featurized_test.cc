// Featurized entity types from import to neighbours, on one machine and in a cluster: the graph of
// examples/featurized.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/common/file_util.h"
#include "tests/testing/local_cluster.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::ProgramOptions;
using testing::ProgramResult;
using testing::RunProgram;
using testing::TempDir;
using testing::WeftPath;

// A folder with the example's configuration and edges, imported.
class FeaturizedTest : public ::testing::Test {
 protected:
  FeaturizedTest() {
    std::filesystem::copy(Example("config.json"), dir_.File("config.json"));
    MakeEdges();
  }

  static std::string Example(const std::string& file) {
    return absl::StrCat(WEFT_SOURCE_DIR, "/examples/featurized/", file);
  }
  void MakeEdges(std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {"/usr/bin/env", "python3", Example("make_edges.py"),
                                        "edges"};
    command.insert(command.end(), more.begin(), more.end());
    Ok(RunProgram(command, InFolder()));
  }
  // From here on, documents have two partitions.
  void PartitionDocuments() const {
    json config = Json("config.json");
    config["entities"]["document"]["num_partitions"] = 2;
    ASSERT_TRUE(WriteFileAtomically(dir_.File("config.json"), config.dump()).ok());
  }

  ProgramOptions InFolder() const {
    ProgramOptions options;
    options.folder = dir_.path();
    return options;
  }

  static ProgramResult Ok(ProgramResult result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }
  ProgramResult Weft(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), WeftPath());
    return Ok(RunProgram(arguments, InFolder()));
  }
  ProgramResult Import(std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {
        "import",    "config.json", "edges/train.tsv", "edges/test.tsv",
        "--lhs-col", "0",           "--rel-col",       "1",
        "--rhs-col", "2",           "--set",           "edge_paths=data/train,data/test"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Weft(arguments);
  }
  json Json(const std::string& name) const {
    const auto text = ReadFile(dir_.File(name));
    EXPECT_TRUE(text.ok()) << text.status();
    return json::parse(text.value_or("{}"));
  }

  // The share of edges whose reader is among the 50 best of 200; 20 are of the topic.
  double Hits50(const std::string& edges = "data/test",
                const std::string& training = "data/train") const {
    Weft({"eval", "config.json", "--edges", edges, "--filter", training, "--set",
          "edge_paths=" + training, "--json", "eval.json"});
    const json report = Json("eval.json");
    EXPECT_EQ(report["protocol"]["sides"], json({"rhs"}));
    EXPECT_EQ(report["protocol"]["unranked"],
              json::array({{{"relation", "read_by"}, {"side", "lhs"}}}));
    EXPECT_EQ(report["filtered"]["count"], report["protocol"]["num_edges"]);
    return report["filtered"]["hits_at_50"];
  }

  TempDir dir_;
};

TEST_F(FeaturizedTest, TrainsEvaluatesAndAnswers) {
  EXPECT_THAT(Import().out, AllOf(HasSubstr("entity type document: 400 features"),
                                  HasSubstr("entity type reader: 200 entities in 2 partitions")));

  Weft({"train", "config.json", "--json", "train.json"});

  const json trained = Json("train.json");
  EXPECT_TRUE(trained["complete"]);
  EXPECT_LT(trained["epochs"][9]["loss"], trained["epochs"][0]["loss"]);
  EXPECT_GT(trained["epochs"][9]["held_out_edges"], 0);
  EXPECT_GT(trained["epochs"][9]["eval_after"]["mrr"], trained["epochs"][0]["eval_before"]["mrr"]);
  // Documents that were never seen: their words have been.
  EXPECT_GT(Hits50(), 0.95);

  const ProgramResult near = Weft({"neighbors", "model", "--entity", "chess_7", "-k", "5"});
  std::istringstream lines(near.out);
  std::string line;
  std::getline(lines, line);
  int of_topic = 0;
  while (std::getline(lines, line)) of_topic += line.find("  chess_") != std::string::npos ? 1 : 0;
  EXPECT_EQ(of_topic, 5) << near.out;

  const ProgramResult best = Weft(
      {"score", "model", "--lhs", "sailing_3,sailing_8,chess_1", "--rel", "read_by", "-k", "5"});
  EXPECT_THAT(best.out, HasSubstr("sailing_reader_"));
}

TEST_F(FeaturizedTest, ARunGoesOnWhereItWas) {
  Import();
  Weft({"train", "config.json", "--set", "num_epochs=2"});

  const ProgramResult more = Weft({"train", "config.json", "--set", "num_epochs=3"});

  EXPECT_THAT(more.out, HasSubstr("complete (3/3 epochs): version 3 in model"));
}

TEST_F(FeaturizedTest, ExportsFeatures) {
  Import();
  Weft({"train", "config.json", "--set", "num_epochs=1"});

  Weft({"export", "model", "--to", "tsv", "-o", "out"});

  const std::string text = ReadFile(dir_.File("out/entities_document.tsv")).value_or("");
  const std::vector<std::string> rows = absl::StrSplit(text, '\n', absl::SkipEmpty());
  EXPECT_EQ(rows.size(), 400u);
  for (const std::string& row : rows) {
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(row, '\t')).size(), 33u);
  }
}

// Words of a topic are together; the topics' words are of any partition.
TEST_F(FeaturizedTest, PartitionsHaveTheFeaturesThatOccurTogether) {
  MakeEdges({"--apart"});
  PartitionDocuments();
  const ProgramResult imported = Import();
  EXPECT_THAT(imported.out, HasSubstr("entity type document: 400 features in 2 partitions"));
  EXPECT_EQ(imported.err, "");

  Weft({"train", "config.json"});

  EXPECT_GT(Hits50(), 0.95);
  std::map<std::string, std::set<int>> partitions_of_topic;
  std::map<int, int> words_of_partition;
  for (const int partition : {0, 1}) {
    for (const std::string word :
         Json(absl::StrCat("data/entity_names_document_", partition, ".json"))) {
      partitions_of_topic[word.substr(0, word.find('_'))].insert(partition);
      ++words_of_partition[partition];
    }
  }
  EXPECT_EQ(words_of_partition, (std::map<int, int>{{0, 200}, {1, 200}}));
  for (const auto& [topic, partitions] : partitions_of_topic) EXPECT_EQ(partitions.size(), 1u);
  // Those who ask may mix them.
  EXPECT_THAT(Weft({"score", "model", "--lhs", "sailing_3,sailing_8,chess_1,music_2", "--rel",
                    "read_by", "-k", "5"})
                  .out,
              HasSubstr("sailing_reader_"));
  EXPECT_THAT(Weft({"neighbors", "model", "--entity", "chess_7", "-k", "5"}).out,
              HasSubstr("nearest of 400"));
  Weft({"export", "model", "--to", "tsv", "-o", "out"});
  const std::string text = ReadFile(dir_.File("out/entities_document.tsv")).value_or("");
  EXPECT_EQ(std::ranges::count(text, '\n'), 400);
  EXPECT_THAT(Weft({"plan", "config.json"}).out, HasSubstr("2 x 2 partitions"));
}

// Each document has a word of any topic: all words are together, and a partition is empty.
TEST_F(FeaturizedTest, FeaturesThatCannotBePartedAreToldAndTrained) {
  PartitionDocuments();
  EXPECT_THAT(Import().err,
              HasSubstr("entity type document: one of its 2 partitions has 400 of its 400 "
                        "features; features that entities have together cannot be parted, and "
                        "400 hang together. Make its num_partitions 1"));

  Weft({"train", "config.json"});

  EXPECT_GT(Hits50(), 0.95);
}

// The same model from the implementation that the fused one is compared with.
TEST_F(FeaturizedTest, TheReferenceTrains) {
  if (!WEFT_HAS_REFERENCE) GTEST_SKIP() << "built without LibTorch";
  Import();
  Weft({"train", "config.json", "--set", "num_epochs=4", "--set", "compute=reference"});

  EXPECT_GT(Hits50(), 0.9);

  MakeEdges({"--apart"});
  PartitionDocuments();
  Import({"--force"});
  std::filesystem::remove_all(dir_.File("model"));
  Weft({"train", "config.json", "--set", "num_epochs=4", "--set", "compute=reference"});

  EXPECT_GT(Hits50(), 0.9);
}

TEST_F(FeaturizedTest, EdgesOfAnotherConfigurationAreRefused) {
  Import();
  // As if another program had made them.
  for (const char* folder : {"data", "data/train", "data/test"}) {
    std::filesystem::remove(dir_.File(absl::StrCat(folder, "/weft_manifest.json")));
  }

  const ProgramResult result = RunProgram(
      {WeftPath(), "train", "config.json", "--set", "entities.document.featurized=false"},
      InFolder());

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("edges_0_"));
}

class FeaturizedClusterTest : public FeaturizedTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(absl::StrCat(cli::ProgramFolder(), "/weft-param-server"))) {
      GTEST_SKIP() << "no parameter server is built";
    }
  }

  // Trains in a cluster, with its overrides of the paths.
  void Train(const std::string& entity_path, const std::string& edge_path) {
    LocalCluster::Options options;
    options.config = dir_.File("config.json");
    options.overrides = {"entity_path=" + entity_path, "edge_paths=" + edge_path,
                         "checkpoint_path=" + dir_.File("model"), "lease_seconds=2"};
    options.folder = dir_.File("cluster");
    LocalCluster cluster(options);
    ASSERT_TRUE(cluster.ok());
    if (edge_path.starts_with("cluster://")) {
      Weft({"import", "config.json", "edges/train.tsv", "--lhs-col", "0", "--rel-col", "1",
            "--rhs-col", "2", "--set", "edge_paths=" + edge_path, "--to",
            cluster.processes().lock_server()});
    }
    cluster.AwaitEnd();
    Weft({"checkpoint", "pull", cluster.processes().lock_server(), "-o", "model"});
  }
};

TEST_F(FeaturizedClusterTest, TheParameterServersKeepTheFeatures) {
  Import();
  Train(dir_.File("data"), dir_.File("data/train"));

  EXPECT_GT(Hits50(), 0.95);
}

TEST_F(FeaturizedClusterTest, ThePartitionServersKeepTheEdgesWithTheirFeatures) {
  Train("/nowhere/entities", "cluster://train");

  EXPECT_GT(Hits50("data/edges/train", "data/edges/train"), 0.95);
}

TEST_F(FeaturizedClusterTest, ThePartitionServersKeepFeaturesThatHavePartitions) {
  MakeEdges({"--apart"});
  PartitionDocuments();
  Train("/nowhere/entities", "cluster://train");

  EXPECT_GT(Hits50("data/edges/train", "data/edges/train"), 0.95);
}

}  // namespace
}  // namespace weft
