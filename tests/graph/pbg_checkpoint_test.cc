// Reads the checkpoints in tests/golden that PyTorch-BigGraph wrote, and compares them with what it
// reads from them itself (expected.json).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/common/run_config.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/model/model_spec.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::IsOk;
using testing::TempDir;

class PbgCheckpointTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* source = std::getenv("WEFT_SOURCE_DIR");
    ASSERT_NE(source, nullptr);
    folder_ = absl::StrCat(source, "/tests/golden/", GetParam());
    auto config = LoadRunConfig(folder_ + "/checkpoint/config.json");
    ASSERT_THAT(config, IsOk());
    config_ = std::move(config->config);
    expected_ = json::parse(*ReadFile(folder_ + "/expected.json"));
  }

  CheckpointDir OpenDir() const {
    std::vector<CheckpointDir::EntityType> types;
    for (const EntityConfig& e : config_.entities) types.push_back({e.name, e.num_partitions});
    return CheckpointDir(folder_ + "/checkpoint", types);
  }
  ParameterSet Parameters() const {
    const int64_t relations =
        config_.dynamic_relations ? *ReadRelationCount(folder_ + "/entities") : 0;
    return MakeInitialParameters(*MakeModelSpec(config_, relations));
  }
  int64_t Version() const { return expected_["version"]; }

  std::string folder_;
  RunConfig config_;
  json expected_;
};

std::vector<float> Flat(const FloatBlock& block) {
  return {block.span().begin(), block.span().end()};
}

std::vector<float> Flat(const json& values) {
  std::vector<float> flat;
  for (const json& value : values) {
    if (value.is_array()) {
      for (const float x : Flat(value)) flat.push_back(x);
    } else {
      flat.push_back(value.get<float>());
    }
  }
  return flat;
}

TEST_P(PbgCheckpointTest, TablesAndTheirSumsAreRead) {
  const CheckpointDir dir = OpenDir();
  ASSERT_EQ(*dir.CommittedVersion(), Version());
  for (size_t t = 0; t < config_.entities.size(); ++t) {
    const EntityConfig& type = config_.entities[t];
    for (int p = 0; p < type.num_partitions; ++p) {
      const std::string key = absl::StrCat(type.name, "_", p);
      SCOPED_TRACE(key);
      const int64_t count = *ReadEntityCount(folder_ + "/entities", type.name, p);
      const auto read = ReadEmbeddingsFile(dir.EmbeddingsPath(type.name, p, Version()), count,
                                           config_.EntityDimension(static_cast<EntityTypeId>(t)));
      ASSERT_THAT(read, IsOk());
      EXPECT_EQ(Flat(read->embeddings), Flat(expected_["embeddings"][key]["values"]));
      EXPECT_EQ(Flat(read->adagrad_sums), Flat(expected_["embeddings"][key]["sums"]));
    }
  }
}

TEST_P(PbgCheckpointTest, ParametersAndTheirSumsAreReadByTheRightName) {
  ParameterSet parameters = Parameters();
  ASSERT_THAT(ReadModelFile(OpenDir().ModelPath(Version()), &parameters), IsOk());

  const json& model = expected_["model"];
  ASSERT_EQ(parameters.all().size(), model.size());
  int64_t most_steps = 0;
  for (const Parameter& parameter : parameters.all()) {
    SCOPED_TRACE(parameter.name);
    ASSERT_TRUE(model.contains(parameter.name));
    const json& entry = model[parameter.name];
    EXPECT_EQ(Flat(parameter.values), Flat(entry["values"]));
    EXPECT_EQ(Flat(parameter.adagrad_sums), Flat(entry["sums"]));
    most_steps = std::max(most_steps, entry["steps"].get<int64_t>());
  }
  EXPECT_EQ(parameters.steps, most_steps);
}

// What is written again is, to every reader, what PBG wrote.
TEST_P(PbgCheckpointTest, WhatIsReadIsWrittenBackTheSame) {
  ParameterSet parameters = Parameters();
  ASSERT_THAT(ReadModelFile(OpenDir().ModelPath(Version()), &parameters), IsOk());
  const TempDir temp;
  ASSERT_THAT(WriteModelFile(temp.File("model.v1.h5"), parameters, 0.1, {}), IsOk());

  ParameterSet again = Parameters();
  ASSERT_THAT(ReadModelFile(temp.File("model.v1.h5"), &again), IsOk());
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    EXPECT_EQ(Flat(again.all()[i].values), Flat(parameters.all()[i].values));
    EXPECT_EQ(Flat(again.all()[i].adagrad_sums), Flat(parameters.all()[i].adagrad_sums));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, PbgCheckpointTest,
                         ::testing::Values("pbg_static", "pbg_dynamic_affine",
                                           "pbg_dynamic_complex", "pbg_no_parameters"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace weft
