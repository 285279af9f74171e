// Runs that PyTorch-BigGraph began (tests/golden/pbg_*) go on where it stopped.
// scripts/pbg_round_trip compares with PyTorch-BigGraph itself, where it is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
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
#include "services/common/run_config.h"
#include "tests/testing/run_program.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::ProgramResult;
using testing::RunWeft;
using testing::TempDir;

class PbgResumeTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* source = std::getenv("WEFT_SOURCE_DIR");
    ASSERT_NE(source, nullptr);
    std::filesystem::copy(absl::StrCat(source, "/tests/golden/", GetParam()), dir_.path(),
                          std::filesystem::copy_options::recursive);
    auto config = LoadRunConfig(dir_.File("checkpoint/config.json"));
    ASSERT_THAT(config, IsOk());
    config_ = std::move(config->config);
    WriteEdges();
  }

  // Every relation between the first entities of every bucket.
  void WriteEdges() {
    ASSERT_THAT(MakeDirectories(dir_.File("edges")), IsOk());
    const auto relations = static_cast<int32_t>(
        config_.dynamic_relations ? *ReadRelationCount(dir_.File("entities"))
                                  : static_cast<int64_t>(config_.relations.size()));
    for (int lhs = 0; lhs < config_.NumPartitions(Side::kLhs); ++lhs) {
      for (int rhs = 0; rhs < config_.NumPartitions(Side::kRhs); ++rhs) {
        EdgeList edges;
        for (int32_t i = 0; i < 3 * relations; ++i) {
          edges.lhs.push_back(i % 3);
          edges.rhs.push_back((i + 1) % 3);
          edges.rel.push_back(i % relations);
        }
        auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir_.File("edges"), {lhs, rhs}),
                                               /*weighted=*/false);
        ASSERT_THAT(writer, IsOk());
        ASSERT_THAT((*writer)->Append(edges), IsOk());
        ASSERT_THAT((*writer)->Finish(), IsOk());
      }
    }
  }

  ProgramResult GoOn(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train", "checkpoint/config.json", "--set",
                                          "num_epochs=3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunWeft(arguments, {.folder = dir_.path()});
  }

  const TempDir dir_;
  RunConfig config_;
};

TEST_P(PbgResumeTest, TrainingGoesOnWithItsVectorsAndSums) {
  const ProgramResult result = GoOn();

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(*ReadFile(dir_.File("checkpoint/checkpoint_version.txt")), "3\n");
  const nlohmann::json before = nlohmann::json::parse(*ReadFile(dir_.File("expected.json")));
  const CheckpointDir files(dir_.File("checkpoint"), {});
  for (size_t t = 0; t < config_.entities.size(); ++t) {
    const EntityConfig& type = config_.entities[t];
    for (int p = 0; p < type.num_partitions; ++p) {
      SCOPED_TRACE(absl::StrCat(type.name, "_", p));
      const int64_t count = *ReadEntityCount(dir_.File("entities"), type.name, p);
      const auto table = ReadEmbeddingsFile(files.EmbeddingsPath(type.name, p, 3), count,
                                            config_.EntityDimension(static_cast<int>(t)));
      ASSERT_THAT(table, IsOk());
      const auto& sums = before["embeddings"][absl::StrCat(type.name, "_", p)]["sums"];
      double gained = 0;
      for (int64_t row = 0; row < count; ++row) {
        const double gain = table->adagrad_sums.data()[row] - sums[row].get<float>();
        EXPECT_GE(gain, 0) << row;  // sums of squares
        gained += gain;
      }
      EXPECT_GT(gained, 0);
    }
  }
  const auto stored = ReadModelFile(files.ModelPath(3));
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->all().size(), before["model"].size());
}

TEST_P(PbgResumeTest, AnotherShapeIsRefusedWithKeyAndBothValues) {
  const std::string version = dir_.File("checkpoint/checkpoint_version.txt");
  const std::string config = *ReadFile(dir_.File("checkpoint/config.json"));

  const ProgramResult dimension = GoOn({"--set", "dimension=8"});
  const ProgramResult op = GoOn({"--set", "relations.0.operator=diagonal"});

  EXPECT_EQ(dimension.exit_code, 1);
  EXPECT_THAT(dimension.err, AllOf(HasSubstr("dimension"), HasSubstr("4"), HasSubstr("8")));
  EXPECT_EQ(op.exit_code, 1);
  EXPECT_THAT(op.err, AllOf(HasSubstr("operator"), HasSubstr("diagonal"),
                            HasSubstr(config_.relations[0].operator_name)));
  EXPECT_EQ(*ReadFile(version), "2\n");
  EXPECT_EQ(*ReadFile(dir_.File("checkpoint/config.json")), config);
  EXPECT_FALSE(std::filesystem::exists(dir_.File("checkpoint/.weft")));
}

INSTANTIATE_TEST_SUITE_P(Golden, PbgResumeTest,
                         ::testing::Values("pbg_static", "pbg_dynamic_affine",
                                           "pbg_dynamic_complex", "pbg_no_parameters"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace weft
