// Runs `weft eval` on worlds small enough to rank by brute force.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/edge_bucket_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/evaluation_world.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::FillWithQuarters;
using ::testing::HasSubstr;
using testing::MakeDynamicWorld;
using testing::PartitionedWorld;
using testing::ProgramResult;
using testing::RankByBruteForce;
using testing::World;

void Write(const std::string& path, const std::string& contents) {
  ASSERT_TRUE(WriteFileAtomically(path, contents).ok()) << path;
}

void WriteEdges(const std::string& folder, const EntityIndex& index,
                const std::vector<IndexedEdge>& edges) {
  std::filesystem::create_directories(folder);
  std::map<Bucket, EdgeList> buckets;
  for (const IndexedEdge& edge : edges) {
    const EntityPosition lhs = index.PositionOf(0, edge.lhs);
    const EntityPosition rhs = index.PositionOf(0, edge.rhs);
    EdgeList& list = buckets[{lhs.partition, rhs.partition}];
    list.lhs.push_back(lhs.offset);
    list.rhs.push_back(rhs.offset);
    list.rel.push_back(edge.rel);
  }
  for (const auto& [bucket, list] : buckets) {
    auto writer = EdgeBucketWriter::Create(EdgeBucketPath(folder, bucket), /*weighted=*/false);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE((*writer)->Append(list).ok());
    ASSERT_TRUE((*writer)->Finish().ok());
  }
}

// A folder with a trained world: run.json, entities/, train/, test/, model/.
class EvalTest : public ::testing::Test {
 protected:
  void Save(const World& world, int num_partitions, const std::string& folder) {
    PartitionedWorld parts(world, num_partitions);
    const int dimension = world.spec.entity_types[0].dimension;
    const std::string config =
        absl::StrCat(R"({"entities": {"all": {"num_partitions": )", num_partitions, R"(}},
            "relations": [{"name": "all", "lhs": "all", "rhs": "all", "operator": "diagonal"}],
            "dynamic_relations": true, "dimension": )",
                     dimension, R"(,
            "comparator": "dot", "global_emb": false,
            "entity_path": "entities", "edge_paths": ["train"], "checkpoint_path": "model"})");
    const std::string entities = absl::StrCat(folder, "/entities");
    const std::string model = absl::StrCat(folder, "/model");
    std::filesystem::create_directories(entities);
    std::filesystem::create_directories(model);
    Write(absl::StrCat(folder, "/run.json"), config);
    Write(absl::StrCat(model, "/config.json"), config);
    std::vector<std::string> relations;
    for (int64_t r = 0; r < world.spec.num_dynamic_relations; ++r) {
      relations.push_back(absl::StrCat("relation-", r));
    }
    ASSERT_TRUE(WriteRelationCount(entities, world.spec.num_dynamic_relations).ok());
    ASSERT_TRUE(WriteRelationNames(entities, relations).ok());
    CheckpointMetadata metadata;
    metadata.config_json = config;
    CheckpointDir checkpoint(model, {{"all", num_partitions}});
    for (int p = 0; p < num_partitions; ++p) {
      const FloatBlock& table = parts.tables.table({0, p});
      ASSERT_TRUE(WriteEntityCount(entities, "all", p, table.rows()).ok());
      EmbeddingPartition partition(table.rows(), table.cols());
      partition.embeddings = table.Clone();
      ASSERT_TRUE(
          WriteEmbeddingsFile(checkpoint.EmbeddingsPath("all", p, 1), partition, 0.1, metadata)
              .ok());
    }
    ASSERT_TRUE(WriteModelFile(checkpoint.ModelPath(1), world.parameters, 0.1, metadata).ok());
    ASSERT_TRUE(checkpoint.Commit(1).ok());
    WriteEdges(absl::StrCat(folder, "/train"), parts.index, parts.known);
    WriteEdges(absl::StrCat(folder, "/test"), parts.index, parts.edges);
  }

  ProgramResult Eval(const std::string& folder, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "eval");
    return testing::RunWeft(arguments, {.folder = folder});
  }

  json Report(const std::string& folder, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--json", "report.json"});
    const ProgramResult result = Eval(folder, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(ReadFile(folder + "/report.json").value());
  }

  testing::TempDir dir_;
};

World SmallWorld() {
  return MakeDynamicWorld(1, 900, 3, 6, 120, Comparator::kDot, FillWithQuarters);
}

TEST_F(EvalTest, FiguresAreThoseOfTheDefinition) {
  const World world = SmallWorld();
  Save(world, 2, dir_.path());
  const std::vector<EdgeCounts> counts = RankByBruteForce(world);
  std::vector<int64_t> all(counts.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const GroupMetrics expected = ComputeGroupMetrics(counts, all, kSides);

  const json report = Report(dir_.path(), {"run.json", "--edges", "test", "--filter", "train"});

  EXPECT_EQ(report["raw"]["mrr"].get<double>(), expected.raw.both.realistic.mrr);
  EXPECT_EQ(report["raw"]["lhs"]["mean_rank"].get<double>(), expected.raw.lhs.realistic.mean_rank);
  EXPECT_EQ(report["filtered"]["mrr"].get<double>(), expected.filtered.both.realistic.mrr);
  EXPECT_EQ(report["filtered"]["pessimistic"]["hits_at_10"].get<double>(),
            expected.filtered.both.pessimistic.hits_at_10);
  EXPECT_EQ(report["filtered"]["auc"].get<double>(), expected.filtered.both.auc.value());
}

TEST_F(EvalTest, ReportIsTheSameForEveryNumberOfPartitionsAndThreads) {
  const World world =
      MakeDynamicWorld(2, 900, 3, 20, 120, Comparator::kDot, testing::FillWithNormals);
  std::string first;
  for (const int num_partitions : {1, 2, 8}) {
    const std::string folder = dir_.File(absl::StrCat("p", num_partitions));
    Save(world, num_partitions, folder);
    for (const char* threads : {"1", "2"}) {
      SCOPED_TRACE(absl::StrCat(num_partitions, " partitions, ", threads, " threads"));
      Report(folder, {"run.json", "--edges", "test", "--filter", "train", "--threads", threads});
      const std::string text = ReadFile(folder + "/report.json").value();
      if (first.empty()) first = text;
      EXPECT_EQ(text, first);
    }
  }
}

TEST_F(EvalTest, ProtocolAndBothKindsOfFiguresAreNamed) {
  Save(SmallWorld(), 1, dir_.path());

  const ProgramResult result =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--filter", "train"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("edges       120 of test"),
                                HasSubstr("all entities (900 of type all)"),
                                HasSubstr("the evaluated edges and 120 of train"),
                                HasSubstr("raw, both"), HasSubstr("filtered, both"),
                                HasSubstr("ties optimistic"), HasSubstr("ties pessimistic")));
}

TEST_F(EvalTest, FilteringByMoreEdgesRanksNoLower) {
  const World world = SmallWorld();
  Save(world, 1, dir_.path());

  const json alone = Report(dir_.path(), {"run.json", "--edges", "test"});
  const json with = Report(dir_.path(), {"run.json", "--edges", "test", "--filter", "train"});

  EXPECT_EQ(alone["raw"], with["raw"]);
  EXPECT_GT(with["filtered"]["mrr"], alone["filtered"]["mrr"]);
  EXPECT_GT(alone["filtered"]["mrr"], alone["raw"]["mrr"]);
}

TEST_F(EvalTest, EveryFilterCounts) {
  const World world = SmallWorld();
  Save(world, 1, dir_.path());
  const json all = Report(dir_.path(), {"run.json", "--edges", "test", "--filter", "train"});
  const PartitionedWorld parts(world, 1);
  const auto half = parts.known.begin() + static_cast<int64_t>(parts.known.size() / 2);
  WriteEdges(dir_.File("train"), parts.index, {parts.known.begin(), half});
  WriteEdges(dir_.File("valid"), parts.index, {half, parts.known.end()});

  const json train = Report(dir_.path(), {"run.json", "--edges", "test", "--filter", "train"});
  const json both = Report(
      dir_.path(), {"run.json", "--edges", "test", "--filter", "train", "--filter", "valid"});

  EXPECT_EQ(both["filtered"], all["filtered"]);
  EXPECT_LT(train["filtered"]["mrr"], both["filtered"]["mrr"]);
  EXPECT_EQ(train["raw"], both["raw"]);
  EXPECT_EQ(both["protocol"]["filter"]["edges"], json::array({"train", "valid"}));
}

TEST_F(EvalTest, ACheckpointFolderIsAModel) {
  Save(SmallWorld(), 2, dir_.path());

  const json by_config = Report(dir_.path(), {"run.json", "--edges", "test"});
  const json by_folder = Report(dir_.path(), {"model", "--edges", "test"});

  EXPECT_EQ(by_folder["raw"], by_config["raw"]);
  EXPECT_EQ(by_folder["protocol"]["checkpoint_version"], 1);
}

#ifdef WEFT_WITH_TORCH
TEST_F(EvalTest, TheReferenceComputesTheSameFigures) {
  Save(SmallWorld(), 2, dir_.path());

  const json fused = Report(dir_.path(), {"run.json", "--edges", "test"});
  const json reference =
      Report(dir_.path(), {"run.json", "--edges", "test", "--set", "compute=reference"});

  EXPECT_EQ(reference["raw"], fused["raw"]);
  EXPECT_EQ(reference["filtered"], fused["filtered"]);
}
#endif

TEST_F(EvalTest, RelationsAreListedByName) {
  Save(SmallWorld(), 1, dir_.path());

  const ProgramResult result =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--by-relation", "--json", "report.json"});
  const json report = json::parse(ReadFile(dir_.File("report.json")).value());

  EXPECT_THAT(result.out, AllOf(HasSubstr("relation-0"), HasSubstr("relation-2")));
  ASSERT_EQ(report["by_relation"].size(), 3);
  EXPECT_EQ(report["by_relation"][1]["name"], "relation-1");
  int64_t edges = 0;
  for (const json& relation : report["by_relation"]) edges += relation["num_edges"].get<int64_t>();
  EXPECT_EQ(edges, 120);
}

TEST_F(EvalTest, EntitiesThatTrainingNeverSawAreCountedApart) {
  World world = SmallWorld();
  world.edges = {{.lhs = 1, .rhs = 2, .rel = 0},
                 {.lhs = 1, .rhs = 800, .rel = 0},
                 {.lhs = 801, .rhs = 800, .rel = 1}};
  world.known = {{.lhs = 1, .rhs = 2, .rel = 1}};
  Save(world, 2, dir_.path());

  const json report = Report(dir_.path(), {"run.json", "--edges", "test"});

  EXPECT_EQ(report["unseen"]["num_entities"], 2);
  EXPECT_EQ(report["unseen"]["touching"]["num_edges"], 2);
  EXPECT_EQ(report["unseen"]["others"]["num_edges"], 1);
}

TEST_F(EvalTest, WithoutTheEdgesOfTrainingItSaysSo) {
  Save(SmallWorld(), 1, dir_.path());
  std::filesystem::remove_all(dir_.File("train"));

  const ProgramResult result = Eval(dir_.path(), {"run.json", "--edges", "test"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("not counted, edge_paths: no folder train"));
}

TEST_F(EvalTest, SamplesAreNamedAndRepeatable) {
  Save(SmallWorld(), 2, dir_.path());

  const json first = Report(dir_.path(), {"run.json", "--edges", "test", "--candidates", "100"});
  const json second = Report(dir_.path(), {"run.json", "--edges", "test", "--candidates", "100"});
  const json other = Report(
      dir_.path(), {"run.json", "--edges", "test", "--candidates", "100", "--set", "seed=5"});

  EXPECT_EQ(first["protocol"]["candidates"]["sampled"], 100);
  EXPECT_EQ(first, second);
  EXPECT_EQ(other["protocol"]["candidates"]["seed"], 5);
  EXPECT_NE(other["raw"], first["raw"]);
}

TEST_F(EvalTest, ASideWithoutNegativesIsNotRanked) {
  Save(SmallWorld(), 1, dir_.path());

  const json report =
      Report(dir_.path(), {"run.json", "--edges", "test", "--set", "disable_lhs_negs=true"});

  EXPECT_EQ(report["protocol"]["sides"], json({"rhs"}));
  EXPECT_FALSE(report["raw"].contains("lhs"));
  EXPECT_EQ(report["raw"]["count"], 120);
}

TEST_F(EvalTest, ATableThatIsNotFiniteIsRefused) {
  World world = SmallWorld();
  std::ranges::fill(world.vectors[0].span(), std::numeric_limits<float>::quiet_NaN());
  Save(world, 1, dir_.path());

  const ProgramResult result =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--json", "report.json"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("embeddings_all_0.v1.h5: row 0 holds nan"));
  EXPECT_EQ(result.out, "");
  EXPECT_FALSE(std::filesystem::exists(dir_.File("report.json")));
}

TEST_F(EvalTest, MissingAndEmptyEdgesAreSaid) {
  Save(SmallWorld(), 1, dir_.path());
  std::filesystem::create_directories(dir_.File("empty"));

  const ProgramResult missing = Eval(dir_.path(), {"run.json", "--edges", "nowhere"});
  const ProgramResult empty = Eval(dir_.path(), {"run.json", "--edges", "empty"});
  const ProgramResult filter =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--filter", "nowhere"});

  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_THAT(missing.err, HasSubstr("nowhere: no such folder of edges"));
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.err, HasSubstr("nothing to evaluate: no edges in empty"));
  EXPECT_EQ(filter.exit_code, 1);
  EXPECT_THAT(filter.err, HasSubstr("nowhere: no such folder of edges"));
}

TEST_F(EvalTest, EdgesOfOtherEntitiesAreRefused) {
  World world = SmallWorld();
  Save(world, 1, dir_.path());
  const EntityIndex larger(std::vector<std::vector<int64_t>>{{5000}});
  WriteEdges(dir_.File("other"), larger, {{.lhs = 4000, .rhs = 1, .rel = 0}});

  const ProgramResult result = Eval(dir_.path(), {"run.json", "--edges", "other"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("edges_0_0.h5"), HasSubstr("4000")));
}

TEST_F(EvalTest, BadFlagsAndConfigurationsExitWithTwo) {
  Save(SmallWorld(), 1, dir_.path());

  const ProgramResult candidates =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--candidates", "many"});
  const ProgramResult none =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--candidates", "0"});
  const ProgramResult no_edges = Eval(dir_.path(), {"run.json"});
  const ProgramResult key =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--set", "dimensoin=5"});
  const ProgramResult sides =
      Eval(dir_.path(), {"run.json", "--edges", "test", "--set", "disable_lhs_negs=true", "--set",
                         "disable_rhs_negs=true"});

  EXPECT_EQ(candidates.exit_code, 2);
  EXPECT_THAT(candidates.err, HasSubstr("--candidates is \"many\""));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(no_edges.exit_code, 2);
  EXPECT_EQ(key.exit_code, 2);
  EXPECT_THAT(key.err, HasSubstr("dimension"));
  EXPECT_EQ(sides.exit_code, 2);
}

TEST_F(EvalTest, WithoutACheckpointItSaysWhatIsMissing) {
  Save(SmallWorld(), 1, dir_.path());
  std::filesystem::remove_all(dir_.File("model"));

  const ProgramResult result = Eval(dir_.path(), {"run.json", "--edges", "test"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("model"));
}

}  // namespace
}  // namespace weft
