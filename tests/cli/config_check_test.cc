#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunWeft;

constexpr char kConfig[] = R"({
  "entities": {"user": {"num_partitions": 1}},
  "relations": [{"name": "follows", "lhs": "user", "rhs": "user"}],
  "dimension": 8,
  "entity_path": "data", "edge_paths": ["data/edges"], "checkpoint_path": "model"
})";

class ConfigCheckTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& text) {
    const std::string path = folder_.File("run.json");
    std::ofstream(path) << text;
    return path;
  }

  testing::TempDir folder_;
};

TEST_F(ConfigCheckTest, PrintsTheEffectiveConfiguration) {
  const ProgramResult result =
      RunWeft({"config", "check", Write(kConfig), "--set", "lr=0.5", "--set", "seed=7"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, AllOf(HasSubstr("\"lr\": 0.5"), HasSubstr("\"seed\": 7"),
                                HasSubstr("\"batch_size\": 1000"), HasSubstr("\"compute\"")));
}

TEST_F(ConfigCheckTest, WithPbgPrintsOnlyPbgsKeys) {
  const ProgramResult result = RunWeft({"config", "check", "--pbg", Write(kConfig)});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"batch_size\": 1000"));
  EXPECT_THAT(result.out, Not(HasSubstr("\"seed\"")));
}

TEST_F(ConfigCheckTest, WhatItPrintsIsTheSameConfiguration) {
  const ProgramResult first = RunWeft({"config", "check", Write(kConfig)});
  const ProgramResult second = RunWeft({"config", "check", Write(first.out)});

  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out, first.out);
}

TEST_F(ConfigCheckTest, PrintsAllProblemsAndNoConfiguration) {
  const ProgramResult result =
      RunWeft({"config", "check", Write(kConfig), "--set", "lr=-1", "--set", "dimensoin=3"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("2 problems"), HasSubstr("--set lr=-1: lr: must be >= 0, is -1"),
                    HasSubstr("--set dimensoin=3: dimensoin: unknown key; did you mean "
                              "\"dimension\"?")));
}

TEST_F(ConfigCheckTest, PrintsWarningsAndGoesOn) {
  const ProgramResult result =
      RunWeft({"config", "check", Write(kConfig), "--set", "background_io=true"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("warning: without effect in Weft: background_io"));
}

TEST_F(ConfigCheckTest, AMissingFileIsAMistakeOfTheUser) {
  const ProgramResult result = RunWeft({"config", "check", folder_.File("none.json")});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("none.json: No such file or directory"));
}

}  // namespace
}  // namespace weft
