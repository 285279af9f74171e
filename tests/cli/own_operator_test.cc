// examples/own_operator from end to end: import, train with an operator that `weft` does not know,
// evaluate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProgramResult;

constexpr char kConfig[] = WEFT_SOURCE_DIR "/examples/own_operator/config.json";

class OwnOperatorTest : public ::testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    const std::string weft = testing::WeftPath();
    arguments.insert(arguments.begin(), weft.substr(0, weft.rfind('/')) + "/own_operator");
    return testing::RunProgram(arguments, {.input = "", .folder = dir_.path(), .env = {}});
  }

  // Sixty entities on a ring: the next one, and the one seven further. Rotations fit both.
  void WriteRing() {
    std::string edges;
    for (int i = 0; i < 60; ++i) {
      absl::StrAppend(&edges, "n", i, "\tnext\tn", (i + 1) % 60, "\n");
      absl::StrAppend(&edges, "n", i, "\tseven\tn", (i + 7) % 60, "\n");
    }
    ASSERT_TRUE(WriteFileAtomically(dir_.File("edges.tsv"), edges).ok());
  }

  json Report(const std::string& name) {
    const auto text = ReadFile(dir_.File(name));
    EXPECT_TRUE(text.ok()) << text.status();
    return json::parse(text.value_or("{}"));
  }

  testing::TempDir dir_;
};

TEST_F(OwnOperatorTest, TrainsAndRanksWithARegisteredOperator) {
  WriteRing();
  const ProgramResult import =
      Run({"import", kConfig, "edges.tsv", "--lhs-col", "0", "--rel-col", "1", "--rhs-col", "2"});
  ASSERT_EQ(import.exit_code, 0) << import.err;

  const ProgramResult train = Run({"train", kConfig, "--set", "threads=1", "--json", "train.json"});
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const ProgramResult eval =
      Run({"eval", kConfig, "--edges", "data/own_operator/edges", "--json", "eval.json"});
  ASSERT_EQ(eval.exit_code, 0) << eval.err;

  const json epochs = Report("train.json").at("epochs");
  ASSERT_EQ(epochs.size(), 20u);
  EXPECT_LT(epochs.back().at("loss").get<double>(), 0.6 * epochs.front().at("loss").get<double>());
  // One of sixty at random would be 0.08.
  EXPECT_GT(Report("eval.json").at("raw").at("mrr").get<double>(), 0.5);
}

TEST_F(OwnOperatorTest, KnowsItsOperatorAndWhatItNeeds) {
  EXPECT_EQ(Run({"config", "check", kConfig}).exit_code, 0);

  const ProgramResult fast = Run({"config", "check", kConfig, "--set", "compute=fp32"});
  EXPECT_EQ(fast.exit_code, 2);
  EXPECT_THAT(fast.err, HasSubstr("relations[0].operator: is rotation, which is not built in"));

  const ProgramResult weft = testing::RunWeft({"config", "check", kConfig});
  EXPECT_EQ(weft.exit_code, 2);
  EXPECT_THAT(weft.err, AllOf(HasSubstr("relations[0].operator"), HasSubstr("\"rotation\"")));
}

}  // namespace
}  // namespace weft
