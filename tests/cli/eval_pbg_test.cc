// The figures that PyTorch-BigGraph's evaluators gave for the models in
// tests/golden/pbg_evaluation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "services/common/file_util.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using testing::RunWeft;
using testing::TempDir;

// PBG counts a candidate that scores as the edge does above it: the pessimistic rank.
void ExpectFigures(const json& expected, const json& report) {
  const json& figures = report.at("pessimistic");
  EXPECT_NEAR(figures.at("mrr"), expected.at("mrr"), 1e-6);
  EXPECT_NEAR(figures.at("mean_rank"), expected.at("pos_rank"), 1e-5);
  EXPECT_NEAR(figures.at("hits_at_1"), expected.at("r1"), 1e-6);
  EXPECT_NEAR(figures.at("hits_at_10"), expected.at("r10"), 1e-6);
  EXPECT_NEAR(figures.at("hits_at_50"), expected.at("r50"), 1e-6);
}

class EvalPbgTest : public ::testing::TestWithParam<std::string> {};

TEST_P(EvalPbgTest, FiguresArePbgsPessimisticOnes) {
  const char* source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  const std::string folder =
      std::string(source) + "/tests/golden/pbg_evaluation/" + GetParam() + "/";
  const json expected = json::parse(*ReadFile(folder + "expected.json"));
  const TempDir scratch;

  const auto result = RunWeft({"eval", folder + "checkpoint", "--entities", folder + "entities",
                               "--edges", folder + "test", "--filter", folder + "train", "--json",
                               scratch.File("report.json")});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(*ReadFile(scratch.File("report.json")));
  ExpectFigures(expected.at("raw"), report.at("raw"));
  if (expected.contains("filtered")) {
    ExpectFigures(expected.at("filtered"), report.at("filtered"));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, EvalPbgTest, ::testing::Values("dynamic", "static"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace weft
