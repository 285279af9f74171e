// weft import as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunWeft;

class ImportCommandTest : public ::testing::Test {
 protected:
  ImportCommandTest() {
    Write("run.json", R"({
      "entities": {"node": {"num_partitions": 2}},
      "relations": [{"name": "likes", "lhs": "node", "rhs": "node"}],
      "dimension": 8, "entity_path": "data", "edge_paths": ["data/train", "data/valid"],
      "checkpoint_path": "model"})");
    Write("train.tsv", "a\tlikes\tb\nb\tlikes\tc\n\n");
    Write("valid.tsv", "c\tlikes\td\n");
  }

  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.File(name)) << text;
  }

  ProgramResult Import(std::vector<std::string> more, const std::string& input = "") {
    std::vector<std::string> arguments = {"import", "run.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunWeft(arguments, {.input = input, .folder = folder_.path()});
  }

  const std::vector<std::string> kColumns = {"--lhs-col", "0", "--rel-col", "1", "--rhs-col", "2"};
  ProgramResult ImportBoth(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"train.tsv", "valid.tsv"};
    arguments.insert(arguments.end(), kColumns.begin(), kColumns.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Import(arguments);
  }

  bool Exists(const std::string& name) const { return std::filesystem::exists(folder_.File(name)); }

  testing::TempDir folder_;
};

TEST_F(ImportCommandTest, SaysWhatItDid) {
  const ProgramResult result = ImportBoth();

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("imported 3 edges in"), HasSubstr("train.tsv -> data/train: 2 edges in"),
            HasSubstr("of 4 buckets; left out: 1 blank line"),
            HasSubstr("valid.tsv -> data/valid: 1 edge in 1 of 4 buckets; 1 entity is in no "
                      "earlier input"),
            HasSubstr("entity type node: 4 entities in 2 partitions"), HasSubstr("1 relation\n")));
  EXPECT_TRUE(Exists("data/weft_manifest.json"));
}

TEST_F(ImportCommandTest, HeldOutInputsLieBesideThoseThatAreTrainedOn) {
  const auto import = [this](const std::string& held_out) {
    std::vector<std::string> arguments = {"train.tsv", "--held-out", held_out, "--set",
                                          "edge_paths=cluster://train"};
    arguments.insert(arguments.end(), kColumns.begin(), kColumns.end());
    return Import(arguments);
  };

  const ProgramResult result = import("test=valid.tsv");

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("train.tsv -> data/edges/train: 2 edges"),
                                HasSubstr("valid.tsv -> data/edges/test: 1 edge in"),
                                HasSubstr("entity type node: 4 entities")));
  EXPECT_TRUE(Exists("data/edges/test/weft_manifest.json"));
  for (const char* wrong : {"valid.tsv", "=valid.tsv", "a/b=valid.tsv", "..=valid.tsv"}) {
    EXPECT_EQ(import(wrong).exit_code, 2) << wrong;
  }
  EXPECT_THAT(import("train=valid.tsv").err, HasSubstr("data/edges/train is of another input"));
}

TEST_F(ImportCommandTest, AReportThatCannotBeWrittenIsRefusedBeforeTheImport) {
  for (const char* path : {"nowhere/report.json", ".", "train.tsv/report.json", ""}) {
    SCOPED_TRACE(path);
    const ProgramResult result = ImportBoth({"--json", path});

    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("weft import: --json: "));
    EXPECT_FALSE(Exists("data"));
  }
}

TEST_F(ImportCommandTest, AReportFollowsALinkAndKeepsIt) {
  std::filesystem::create_directory(folder_.File("reports"));
  std::filesystem::create_symlink("reports/import.json", folder_.File("report.json"));

  ASSERT_EQ(ImportBoth({"--json", "report.json"}).exit_code, 0);

  EXPECT_TRUE(std::filesystem::is_symlink(folder_.File("report.json")));
  std::ifstream file(folder_.File("reports/import.json"));
  EXPECT_EQ(nlohmann::json::parse(file)["edges"], 3);
}

TEST_F(ImportCommandTest, AReportToADeviceOrStandardOutputReplacesNoFile) {
  // What is printed goes into a file, as with `weft import ... > out`.
  const ProgramResult result = ImportBoth({"--json", "/dev/stdout"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("imported 3 edges"), HasSubstr("\"edges\": 3")));

  ASSERT_EQ(ImportBoth({"--json", "/dev/null"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(ImportCommandTest, TakesPbgsFlagsByTheirNames) {
  const ProgramResult result =
      Import({"train.tsv", "valid.tsv", "-l", "0", "--rel-col", "1", "-r", "2", "-p",
              "entities.node.num_partitions=1", "--relation-type-min-count", "3",
              "--entity-min-count", "2", "--param", "edge_paths=x,y"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("train.tsv -> x: 1 edge"),
                                HasSubstr("entity type node: 2 entities\n")));
}

TEST_F(ImportCommandTest, ASecondRunHasNothingToDo) {
  ASSERT_EQ(ImportBoth().exit_code, 0);

  const ProgramResult again = ImportBoth();

  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.out, HasSubstr("already imported"));
}

TEST_F(ImportCommandTest, AChangeIsRefusedUntilForced) {
  ASSERT_EQ(ImportBoth().exit_code, 0);

  const ProgramResult changed = ImportBoth({"--set", "entities.node.num_partitions=4"});
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.err, AllOf(HasSubstr("weft import: data already holds another import"),
                                 HasSubstr("entities.node.num_partitions is now 4, was 2"),
                                 HasSubstr("--force")));

  EXPECT_EQ(ImportBoth({"--set", "entities.node.num_partitions=4", "--force"}).exit_code, 0);
  EXPECT_TRUE(Exists("data/entity_count_node_3.txt"));
}

TEST_F(ImportCommandTest, BadInputIsExitCode1AndLeavesNothing) {
  Write("valid.tsv", "c\tlikes\td\nc\n");

  const ProgramResult result = ImportBoth();

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "weft import: valid.tsv:2: has 1 field, needs 3: \"c\"\n");
  EXPECT_FALSE(Exists("data"));
}

TEST_F(ImportCommandTest, BadUsageIsExitCode2) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"train.tsv", "valid.tsv"},                                       // no columns
      {"train.tsv", "--lhs-col", "0", "--rhs-col", "2"},                // one input for two paths
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "0"},   // one column twice
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "-3"},  // no column
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--delimiter", "ab"},
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--format", "parquet"},
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--memory", "lots"},
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--memory", "1M"},
      {"-", "-", "--lhs-col", "0", "--rhs-col", "2"},
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--set", "lr=-1"},
      {"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "2", "--set",
       "edge_paths=a/b,a//b/"},
  };
  for (const std::vector<std::string>& mistake : mistakes) {
    const ProgramResult result = Import(mistake);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(mistake) << result.err;
    EXPECT_THAT(result.err, HasSubstr("weft import: "));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_FALSE(Exists("data"));
}

TEST_F(ImportCommandTest, AMissingInputIsExitCode1) {
  const ProgramResult result =
      Import({"train.tsv", "none.tsv", "--lhs-col", "0", "--rhs-col", "2"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("none.tsv"));
  EXPECT_FALSE(Exists("data"));
}

TEST_F(ImportCommandTest, ReadsStandardInput) {
  const ProgramResult result = Import(
      {"-", "valid.tsv", "--lhs-col", "0", "--rhs-col", "1", "--delimiter", "tab"}, "x\ty\n");

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("standard input -> data/train: 1 edge in"));
}

TEST_F(ImportCommandTest, AParquetFileIsRefusedWithTheWayIn) {
  Write("train.parquet", "PAR1\x15\x04\x15\x10");

  const ProgramResult refused =
      Import({"train.parquet", "valid.tsv", "--lhs-col", "0", "--rhs-col", "1"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("train.parquet is a Parquet file, which is not read"),
                                 HasSubstr("pandas.read_parquet"),
                                 HasSubstr("| weft import ... - --format csv --skip-header")));
  EXPECT_FALSE(Exists("data"));

  // As the advice says, with what comes out of that pipe.
  Write("valid.csv", "from,to\nc,d\n");
  const ProgramResult piped = Import(
      {"-", "valid.csv", "--lhs-col", "0", "--rhs-col", "1", "--format", "csv", "--skip-header"},
      "from,to\n\"a, b\",c\n");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_THAT(piped.out, HasSubstr("standard input -> data/train: 1 edge in"));
}

TEST_F(ImportCommandTest, ReadsCsvWithAHeaderAndWeights) {
  Write("train.csv", "weight,from,to\n0.5,\"a, b\",c\n");
  Write("valid.csv", "weight,from,to\n");

  const ProgramResult result = Import({"train.csv", "valid.csv", "--format", "csv", "--skip-header",
                                       "--lhs-col", "1", "--rhs-col", "2", "--weight-col", "0"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("train.csv -> data/train: 1 edge"));
}

TEST_F(ImportCommandTest, WarnsOfAHeader) {
  Write("train.tsv", "from\tto\na\tb\nb\ta\n");
  Write("valid.tsv", "");

  const ProgramResult result =
      Import({"train.tsv", "valid.tsv", "--lhs-col", "0", "--rhs-col", "1"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, AllOf(HasSubstr("warning: train.tsv: line 1 looks like"),
                                HasSubstr("--skip-header")));
}

TEST_F(ImportCommandTest, WritesAReportForMachines) {
  ASSERT_EQ(ImportBoth({"--json", "report.json"}).exit_code, 0);

  std::ifstream file(folder_.File("report.json"));
  nlohmann::ordered_json report = nlohmann::ordered_json::parse(file);
  EXPECT_GT(report["seconds"], 0);
  EXPECT_GT(report["edges_per_second"], 0);
  EXPECT_GT(report["peak_memory_bytes"], 1'000'000);
  // Measured values out of the way, the rest is fixed.
  for (const char* measured : {"seconds", "edges_per_second", "peak_memory_bytes"}) {
    report[measured] = 0;
  }
  EXPECT_EQ(report.dump(1), R"({
 "already_imported": false,
 "seconds": 0,
 "edges": 3,
 "edges_per_second": 0,
 "entities": 4,
 "relations": 1,
 "dropped_entities": 0,
 "dropped_relations": 0,
 "lhs_partitions": 2,
 "rhs_partitions": 2,
 "peak_memory_bytes": 0,
 "entity_types": [
  {
   "name": "node",
   "partitions": [
    3,
    1
   ]
  }
 ],
 "inputs": [
  {
   "name": "train.tsv",
   "edge_path": "data/train",
   "lines": 3,
   "edges": 2,
   "blank_lines": 1,
   "bad_lines": 0,
   "unknown_relations": 0,
   "rare": 0,
   "duplicates": 0,
   "new_entities": 3,
   "nonempty_buckets": 1
  },
  {
   "name": "valid.tsv",
   "edge_path": "data/valid",
   "lines": 1,
   "edges": 1,
   "blank_lines": 0,
   "bad_lines": 0,
   "unknown_relations": 0,
   "rare": 0,
   "duplicates": 0,
   "new_entities": 1,
   "nonempty_buckets": 1
  }
 ],
 "warnings": []
})");
}

// Six times the edges over the same names, 40 MB if they were kept as they are in bucket files.
TEST_F(ImportCommandTest, MemoryDoesNotGrowWithTheEdges) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps what was freed";
#endif
  Write("valid.tsv", "");
  const auto peak = [&](int edges) {
    std::string text;
    for (int i = 0; i < edges; ++i) {
      text += "n" + std::to_string(i % 1009) + "\tlikes\tn" + std::to_string(i % 1013) + "\n";
    }
    Write("train.tsv", text);
    const ProgramResult result = ImportBoth({"--force"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.peak_memory_bytes;
  };

  const int64_t few = peak(500'000);
  const int64_t many = peak(3'000'000);

  EXPECT_LT(many - few, 10'000'000);
}

TEST_F(ImportCommandTest, RejectedLinesAreNamedInTheReport) {
  Write("train.tsv", "a\tlikes\tb\nc\n");

  const ProgramResult result = ImportBoth({"--max-bad-lines", "1"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out,
              HasSubstr("left out: 1 bad line (see data/train/weft_rejected_lines.txt)"));
  EXPECT_TRUE(Exists("data/train/weft_rejected_lines.txt"));
}

}  // namespace
}  // namespace weft
