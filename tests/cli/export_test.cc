#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "services/common/file_util.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/cli/small_checkpoint.h"
#include "tests/testing/run_program.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakeSmallCheckpoint;
using ::testing::Not;
using testing::ProgramResult;
using testing::RunWeft;
using testing::SmallCheckpoint;
using testing::TempDir;

constexpr const char* kOperators[] = {"none",   "translation", "diagonal",
                                      "linear", "affine",      "complex_diagonal"};

// One relation a built-in operator.
std::string StaticConfig() {
  std::string relations;
  for (const char* op : kOperators) {
    absl::StrAppend(&relations, relations.empty() ? "" : ", ", R"({"name": "by )", op,
                    R"(", "lhs": "user", "rhs": "item", "operator": ")", op, R"("})");
  }
  return absl::StrCat(
      R"({"entities": {"user": {"num_partitions": 2}, "item": {"num_partitions": 1}},
      "relations": [)",
      relations, R"(], "dimension": 4, "global_emb": true})");
}

std::string DynamicConfig(const std::string& op) {
  return absl::StrCat(R"({"entities": {"thing": {"num_partitions": 1}},
      "relations": [{"name": "all", "lhs": "thing", "rhs": "thing", "operator": ")",
                      op, R"("}],
      "dynamic_relations": true, "dimension": 4, "global_emb": false})");
}

std::vector<std::vector<std::string>> ReadTable(const std::string& path, char delimiter) {
  std::vector<std::vector<std::string>> rows;
  const std::string text = *ReadFile(path);
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    rows.push_back(absl::StrSplit(line, delimiter));
  }
  return rows;
}

std::vector<float> Floats(std::span<const std::string> fields) {
  std::vector<float> values;
  for (const std::string& field : fields) values.push_back(std::stof(field));
  return values;
}

// The stored vector and the entity type's global embedding, as export adds them.
std::vector<float> Exported(const SmallCheckpoint& checkpoint, const std::string& type,
                            const std::string& name) {
  const std::span<const float> row = checkpoint.Row(type, name);
  std::vector<float> sum(row.begin(), row.end());
  const Parameter* global = checkpoint.parameters.Find(GlobalEmbeddingName(type));
  for (size_t k = 0; global != nullptr && k < sum.size(); ++k) sum[k] += global->values.data()[k];
  return sum;
}

// An array of a .npy file of version 1.0.
struct Npy {
  std::string header;
  std::vector<float> values;
};
Npy ReadNpy(const std::string& path) {
  const std::string bytes = *ReadFile(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length = static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ((10 + length) % 64, 0);
  Npy npy{bytes.substr(10, length), std::vector<float>((bytes.size() - 10 - length) / 4)};
  std::memcpy(npy.values.data(), bytes.data() + 10 + length, npy.values.size() * 4);
  return npy;
}

class ExportTest : public ::testing::Test {
 protected:
  ProgramResult Export(const SmallCheckpoint& checkpoint, const std::string& format) {
    return RunWeft({"export", checkpoint.path, "--to", format, "-o", out_});
  }

  const TempDir folder_;
  const std::string out_ = folder_.File("out");
};

TEST_F(ExportTest, TsvHoldsEveryVectorToTheBit) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());

  const ProgramResult result = Export(checkpoint, "tsv");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto users = ReadTable(out_ + "/entities_user.tsv", '\t');
  ASSERT_EQ(users.size(), 7);
  EXPECT_EQ(users[3][0], "user 1.0");  // after the three of partition 0
  for (const auto& row : users) {
    EXPECT_THAT(Floats(std::span(row).subspan(1)),
                ElementsAreArray(Exported(checkpoint, "user", row[0])));
  }
  EXPECT_EQ(ReadTable(out_ + "/entities_item.tsv", '\t').size(), 3);
}

TEST_F(ExportTest, TsvHoldsEveryStaticOperatorToTheBit) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());

  ASSERT_EQ(Export(checkpoint, "tsv").exit_code, 0);
  const auto rows = ReadTable(out_ + "/relations.tsv", '\t');
  ASSERT_EQ(rows.size(), 7);  // affine and complex_diagonal have two parameters, none has none
  for (const auto& row : rows) {
    SCOPED_TRACE(row[0]);
    const auto relation = std::ranges::find(checkpoint.relation_names, row[0]);
    ASSERT_NE(relation, checkpoint.relation_names.end());
    EXPECT_EQ(row[1], "rhs");
    EXPECT_EQ("by " + row[2], row[0]);
    const Parameter* parameter = checkpoint.parameters.Find(OperatorParameterName(
        static_cast<RelationTypeId>(relation - checkpoint.relation_names.begin()), Side::kRhs,
        row[3]));
    ASSERT_NE(parameter, nullptr);
    EXPECT_EQ(row[4], parameter->shape.size() == 2 ? "4x4" : absl::StrCat(parameter->shape[0]));
    EXPECT_THAT(Floats(std::span(row).subspan(5)), ElementsAreArray(parameter->values.span()));
  }
}

TEST_F(ExportTest, TsvHoldsEveryDynamicOperatorToTheBit) {
  for (const std::string op : kOperators) {
    SCOPED_TRACE(op);
    const TempDir folder;
    const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder.path(), DynamicConfig(op));
    const ProgramResult result =
        RunWeft({"export", checkpoint.path, "--to", "tsv", "-o", folder.File("out")});
    ASSERT_EQ(result.exit_code, 0) << result.err;

    const auto rows = ReadTable(folder.File("out/relations.tsv"), '\t');
    EXPECT_EQ(rows.size(), checkpoint.parameters.all().size() * 3);
    for (const auto& row : rows) {
      const int relation = std::stoi(row[0].substr(row[0].size() - 1));
      EXPECT_EQ(row[0], absl::StrCat("relation ", relation));
      EXPECT_EQ(row[2], op);
      const Parameter* parameter = checkpoint.parameters.Find(
          OperatorParameterName(0, row[1] == "lhs" ? Side::kLhs : Side::kRhs, row[3]));
      ASSERT_NE(parameter, nullptr) << row[3];
      EXPECT_THAT(Floats(std::span(row).subspan(5)),
                  ElementsAreArray(parameter->values.row(relation)));
    }
  }
}

TEST_F(ExportTest, NpyHoldsVectorsNamesAndOperators) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());

  const ProgramResult result = Export(checkpoint, "npy");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Npy users = ReadNpy(out_ + "/entities_user.npy");
  EXPECT_THAT(users.header, AllOf(HasSubstr("'<f4'"), HasSubstr("'shape': (7, 4)")));
  const json names = json::parse(*ReadFile(out_ + "/entities_user.json"));
  ASSERT_EQ(names.size(), 7);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_THAT(std::span(users.values).subspan(i * 4, 4),
                ElementsAreArray(Exported(checkpoint, "user", names[i].get<std::string>())));
  }
  const json index = json::parse(*ReadFile(out_ + "/relations.json"));
  ASSERT_EQ(index["relations"].size(), 6);
  int64_t parameters = 0;
  for (size_t r = 0; r < index["relations"].size(); ++r) {
    const json& relation = index["relations"][r];
    EXPECT_EQ(relation["name"], checkpoint.relation_names[r]);
    EXPECT_EQ(relation["lhs"], "user");
    for (const json& entry : relation["parameters"]) {
      const Parameter* parameter = checkpoint.parameters.Find(OperatorParameterName(
          static_cast<RelationTypeId>(r), Side::kRhs, entry["name"].get<std::string>()));
      ASSERT_NE(parameter, nullptr);
      const Npy array = ReadNpy(out_ + "/" + entry["file"].get<std::string>());
      const auto size = static_cast<size_t>(parameter->size());
      EXPECT_THAT(std::span(array.values).subspan(entry["row"].get<size_t>() * size, size),
                  ElementsAreArray(parameter->values.span()));
      ++parameters;
    }
  }
  EXPECT_EQ(parameters, 7);
}

TEST_F(ExportTest, Word2VecSaysHowManyWordsThereAreAndMakesNamesWords) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());

  const ProgramResult result = Export(checkpoint, "word2vec");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("white space became _ in 7 names"));
  const auto rows = ReadTable(out_ + "/entities_user.vec", ' ');
  ASSERT_EQ(rows.size(), 8);
  EXPECT_THAT(rows[0], ElementsAreArray({"7", "4"}));
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string name = absl::StrReplaceAll(rows[i][0], {{"_", " "}});
    EXPECT_THAT(Floats(std::span(rows[i]).subspan(1)),
                ElementsAreArray(Exported(checkpoint, "user", name)));
  }
}

TEST_F(ExportTest, ARunConfigurationNamesItsCheckpoint) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());

  const ProgramResult result = RunWeft({"export", checkpoint.run_path, "--to", "tsv", "-o", out_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(fs::exists(out_ + "/entities_user.tsv"));
}

TEST_F(ExportTest, MissingNamesAreTold) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());
  fs::remove(checkpoint.entity_path + "/entity_names_user_1.json");

  const ProgramResult result = Export(checkpoint, "tsv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the names of the entities are not there"),
                                HasSubstr("entity_names_user_1.json"), HasSubstr("--entities")));
  EXPECT_FALSE(fs::exists(out_ + "/entities_user.tsv"));  // nothing half-written
}

TEST_F(ExportTest, MissingNamesOfDynamicRelationsAreTold) {
  const SmallCheckpoint checkpoint =
      MakeSmallCheckpoint(folder_.path(), DynamicConfig("complex_diagonal"));
  fs::remove(checkpoint.entity_path + "/dynamic_rel_names.json");

  const ProgramResult result = Export(checkpoint, "tsv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the names of the relations are not there"),
                                HasSubstr("dynamic_rel_names.json")));
}

TEST_F(ExportTest, DataImportedAnewDoNotFitTheCheckpoint) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());
  std::ofstream(checkpoint.entity_path + "/entity_count_user_0.txt") << "9\n";

  const ProgramResult result = Export(checkpoint, "tsv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("imported anew"));
}

TEST_F(ExportTest, ValuesThatAreNotFiniteAreRefused) {
  SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());
  checkpoint.tables[0][1].embeddings.row(2)[3] = std::numeric_limits<float>::quiet_NaN();
  ASSERT_THAT(checkpoint.Rewrite(), IsOk());

  const ProgramResult result = Export(checkpoint, "npy");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("embeddings_user_1.v1.h5: row 2 holds"),
                                HasSubstr("not a finite number")));
  EXPECT_FALSE(fs::exists(out_ + "/entities_user.npy"));
}

TEST_F(ExportTest, ParametersThatAreNotFiniteAreRefused) {
  SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());
  checkpoint.parameters.all()[0].values.data()[0] = std::numeric_limits<float>::infinity();
  ASSERT_THAT(checkpoint.Rewrite(), IsOk());

  const ProgramResult result = Export(checkpoint, "tsv");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("relations/1/operator/rhs/translation"));
}

TEST_F(ExportTest, AFolderThatIsNoCheckpointIsRefused) {
  const ProgramResult result = RunWeft({"export", folder_.path(), "--to", "tsv", "-o", out_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("is no checkpoint"));
}

TEST_F(ExportTest, AnUntrainedRunIsRefused) {
  const SmallCheckpoint checkpoint = MakeSmallCheckpoint(folder_.path(), StaticConfig());
  fs::remove_all(checkpoint.path);

  const ProgramResult result = RunWeft({"export", checkpoint.run_path, "--to", "tsv", "-o", out_});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("holds no trained version yet"));
}

TEST_F(ExportTest, PbgsCheckpointsAreExported) {
  const std::string golden = absl::StrCat(std::getenv("WEFT_SOURCE_DIR"), "/tests/golden/");
  for (const char* name : {"pbg_static", "pbg_dynamic_affine", "pbg_no_parameters"}) {
    SCOPED_TRACE(name);
    const ProgramResult result =
        RunWeft({"export", absl::StrCat(golden, name, "/checkpoint"), "--to", "tsv", "-o", out_});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft
