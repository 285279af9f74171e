#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "services/common/file_util.h"
#include "tests/testing/run_program.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunWeft;

class ConfigInitTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_.File(name)) << text;
    return folder_.File(name);
  }
  // Runs `weft config init` in the folder.
  ProgramResult Init(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.begin(), {"config", "init"});
    return RunWeft(arguments, {.input = input, .folder = folder_.path()});
  }

  testing::TempDir folder_;
};

constexpr char kTriples[] =
    "anna\tknows\tben\nben\tknows\tcarl\ncarl\tlikes\tanna\nanna\tlikes\tcarl\n";

TEST_F(ConfigInitTest, WritesAConfigurationAndSaysWhy) {
  Write("people.tsv", kTriples);

  const ProgramResult result = Init({"people.tsv", "-o", "run.json"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("4 edges, 3 names, 2 relations"), HasSubstr("separated by tab"),
            HasSubstr("weft import run.json people.tsv --lhs-col 0 --rel-col 1 --rhs-col 2")));
  EXPECT_EQ(RunWeft({"config", "check", folder_.File("run.json")}).exit_code, 0);
}

TEST_F(ConfigInitTest, TheNextStepThatItPrintsWorks) {
  Write("people.csv", "head,relation,tail\nanna,knows,ben\nben,knows,carl\ncarl,likes,anna\n");
  const ProgramResult init = Init({"people.csv", "-o", "run.json"});
  ASSERT_EQ(init.exit_code, 0) << init.err;
  ASSERT_THAT(init.out, HasSubstr("weft import run.json people.csv --lhs-col 0 --rel-col 1 "
                                  "--rhs-col 2 --format csv --skip-header\n"));

  const ProgramResult import =
      RunWeft({"import", "run.json", "people.csv", "--lhs-col", "0", "--rel-col", "1", "--rhs-col",
               "2", "--format", "csv", "--skip-header"},
              {.folder = folder_.path()});

  EXPECT_EQ(import.exit_code, 0) << import.err;
  EXPECT_TRUE(std::filesystem::exists(folder_.File("people/entities/entity_count_all_0.txt")));
}

TEST_F(ConfigInitTest, WithoutAFileTheConfigurationGoesToStandardOutput) {
  const ProgramResult result = Init({"-"}, kTriples);

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.front(), '{');
  EXPECT_THAT(result.err, HasSubstr("separated by tab"));
}

TEST_F(ConfigInitTest, AnExistingFileIsKept) {
  Write("people.tsv", kTriples);
  Write("run.json", "mine");

  const ProgramResult kept = Init({"people.tsv", "-o", "run.json"});
  EXPECT_EQ(kept.exit_code, 2);
  EXPECT_THAT(kept.err, HasSubstr("run.json exists"));
  EXPECT_EQ(ReadFile(folder_.File("run.json")).value_or(""), "mine");

  EXPECT_EQ(Init({"people.tsv", "-o", "run.json", "--force"}).exit_code, 0);
}

TEST_F(ConfigInitTest, EntityTypesCanBeNamed) {
  Write("people.tsv", kTriples);

  const ProgramResult result = Init({"people.tsv", "--entities", "person=4,thing"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\"person\""), HasSubstr("\"num_partitions\": 4"),
                                HasSubstr("\"thing\"")));
}

TEST_F(ConfigInitTest, MistakesAreTold) {
  Write("people.tsv", kTriples);
  Write("empty.tsv", "");

  const ProgramResult partitions = Init({"people.tsv", "--entities", "person=many"});
  EXPECT_EQ(partitions.exit_code, 2);
  EXPECT_THAT(partitions.err, HasSubstr("\"person=many\" is not of the form"));
  const ProgramResult empty = Init({"empty.tsv"});
  EXPECT_EQ(empty.exit_code, 2);
  EXPECT_THAT(empty.err, HasSubstr("empty.tsv: has no lines"));
  Write("header.tsv", "head\trelation\ttail\n");
  EXPECT_THAT(Init({"header.tsv"}).err, HasSubstr("header.tsv: has no edges"));
  const ProgramResult missing = Init({"none.tsv"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("none.tsv"));
  EXPECT_FALSE(std::filesystem::exists(folder_.File("run.json")));
}

TEST_F(ConfigInitTest, DataInAFolderOfItsNameIsCalledAfterTheFolder) {
  std::filesystem::create_directories(folder_.File("wiki"));
  Write("wiki/train.txt", kTriples);

  EXPECT_THAT(Init({"wiki/train.txt"}).out, HasSubstr("\"wiki/entities\""));
}

}  // namespace
}  // namespace weft
