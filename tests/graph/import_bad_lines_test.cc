// Inputs that cannot be used as they are: what is said, and that nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "graph/import/bad_line_log.h"
#include "tests/graph/import_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

class BadLinesTest : public testing::ImportFixture {
 protected:
  // Expects that the import fails with a message, and leaves no trace.
  void ExpectRefused(const ::testing::Matcher<std::string>& message) {
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, message));
    EXPECT_FALSE(std::filesystem::exists(options_.entity_path));
  }
  std::string Rejected(size_t input) {
    return Tree(options_.edge_paths[input])[kRejectedLinesFile];
  }
};

TEST_F(BadLinesTest, AShortLineIsNamedWithFileLineAndText) {
  AddInput("a\tr1\tb\na\tr1\tb\na\tr1\tb\na\tr1\tb\na\tr1\tb\na\tr1\tb\na\tb\na\tr1\tb\n");

  ExpectRefused(
      AllOf(HasSubstr("input0.tsv:7: has 2 fields, needs 3: \"a\\tb\""), Not(HasSubstr("\n"))));
}

TEST_F(BadLinesTest, AnEmptyFieldIsNamed) {
  AddInput("a\t\tb\tx\n");

  ExpectRefused(HasSubstr("input0.tsv:1: empty relation: \"a\\t\\tb\\tx\""));
}

TEST_F(BadLinesTest, InvalidUtf8IsNamedWithItsByte) {
  AddInput("a\tr1\tb\nc\tr1\td\xFF\xFE\n");

  ExpectRefused(AllOf(HasSubstr("input0.tsv:2: is not UTF-8 (0xFF) at byte 7 of the line"),
                      HasSubstr("\\xff")));
}

TEST_F(BadLinesTest, AnUnknownRelationIsNamed) {
  AddInput("a\tr1\tb\na\tr9\tb\n");

  ExpectRefused(HasSubstr("input0.tsv:2: relation \"r9\" is not in the configuration"));
}

TEST_F(BadLinesTest, AHeaderIsSuspectedWhenItsRelationIsUnknown) {
  AddInput("head\trelation\ttail\na\tr1\tb\n");

  ExpectRefused(
      AllOf(HasSubstr("input0.tsv:1: relation \"relation\""), HasSubstr("--skip-header")));
}

TEST_F(BadLinesTest, EveryBadWeightIsNamedWithItsLine) {
  options_.parser.format.columns = {0, 2, 1, 3};
  AddInput("a\tr1\tb\theavy\na\tr1\tb\tnan\na\tr1\tb\t-1\na\tr1\tb\n");

  ExpectRefused(AllOf(HasSubstr("input0.tsv:1: weight \"heavy\" is not a number"),
                      HasSubstr("input0.tsv:2: weight \"nan\" is not finite"),
                      HasSubstr("input0.tsv:3: weight \"-1\" is negative"),
                      HasSubstr("input0.tsv:4: has 3 fields, needs 4")));
}

TEST_F(BadLinesTest, LineNumbersCountOnAcrossBlocks) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "a\tr1\tb\n";  // three blocks
  AddInput(text + "a\tb\n");

  ExpectRefused(HasSubstr("input0.tsv:100001: has 2 fields"));
}

TEST_F(BadLinesTest, UpToTheBudgetTheyAreLeftOutAndWrittenDown) {
  options_.max_bad_lines = 2;
  AddInput("a\tr1\tb\nshort\nc\tr1\td\n");
  AddInput("e\tr9\tf\ng\tr1\th\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->inputs[0].bad_lines, 1);
  EXPECT_EQ(report->inputs[1].bad_lines, 1);
  EXPECT_EQ(Rejected(0), "2: has 1 field, needs 3: \"short\"\n");
  EXPECT_THAT(Rejected(1), HasSubstr("1: relation \"r9\""));
  // Nothing of them got in.
  EXPECT_THAT(Names("node", 0), ElementsAre("a", "b", "c", "d", "g", "h"));
}

TEST_F(BadLinesTest, BeyondTheBudgetTheFirstAreShown) {
  options_.max_bad_lines = 2;
  AddInput("1\n2\n3\na\tr1\tb\n");

  ExpectRefused(AllOf(HasSubstr("more than 2 bad lines"), HasSubstr("input0.tsv:1: has 1 field"),
                      HasSubstr("input0.tsv:3: has 1 field")));
}

TEST_F(BadLinesTest, ManyBadLinesAreNotAllShown) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "x\n";
  AddInput(text);

  ExpectRefused(
      AllOf(HasSubstr("input0.tsv:10: "), Not(HasSubstr("input0.tsv:11: ")), HasSubstr("...")));
}

TEST_F(BadLinesTest, AVeryLongLineIsCutInMemoryAndInTheMessage) {
  options_.max_bad_lines = 1;
  AddInput("a\tr1\tb\n" + std::string(10'000'000, 'x') + "\tr1\tb\nc\tr1\td\n");

  const absl::StatusOr<ImportReport> report = Run();

  ASSERT_THAT(report, IsOk());
  EXPECT_THAT(Names("node", 0), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(Rejected(0), HasSubstr("2: is longer than 1048576 bytes: \"xxx"));
  EXPECT_LT(Rejected(0).size(), 200u);
  EXPECT_EQ(report->inputs[0].lines, 3);
}

TEST_F(BadLinesTest, NulBytesAreBad) {
  AddInput(std::string("a\tr1\tb\0\n", 9));

  ExpectRefused(HasSubstr("input0.tsv:1: has a NUL byte at byte 7"));
}

TEST_F(BadLinesTest, ANewImportLeavesNoOldRejectedLines) {
  options_.max_bad_lines = 1;
  AddInput("a\tr1\tb\nshort\n");
  ASSERT_THAT(Run(), IsOk());
  EXPECT_NE(Rejected(0), "");

  Write("input0.tsv", "a\tr1\tb\n");
  options_.force = true;
  ASSERT_THAT(Run(), IsOk());

  EXPECT_EQ(Rejected(0), "");
}

TEST_F(BadLinesTest, AMissingInputIsNamedAndLeavesNothing) {
  AddInput("a\tr1\tb\n");
  options_.inputs[0] = folder_.File("none.tsv");

  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none.tsv")));
  EXPECT_FALSE(std::filesystem::exists(options_.entity_path));
}

TEST_F(BadLinesTest, ADamagedInputLeavesNothing) {
  AddInput("a\tr1\tb\n");
  AddInput("\x1F\x8B\x08 this is no gzip");

  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("input1.tsv")));
  EXPECT_FALSE(std::filesystem::exists(options_.entity_path));
}

TEST_F(BadLinesTest, AFolderThatCannotBeMadeIsNamed) {
  AddInput("a\tr1\tb\n");
  options_.entity_path = Write("file", "") + "/data";

  EXPECT_THAT(Run(), Not(IsOk()));
  EXPECT_THAT(std::string(Run().status().message()), HasSubstr("file/data"));
}

// Runs `body` in a process of its own; true when it returned true.
bool InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(BadLinesTest, AnUnwritableFolderIsNamed) {
  if (geteuid() == 0) {
    // Root may write anywhere; the child becomes nobody.
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  }
  AddInput("a\tr1\tb\n");
  std::filesystem::create_directories(options_.entity_path);
  std::filesystem::permissions(options_.entity_path, std::filesystem::perms(0555));

  EXPECT_TRUE(InChild([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return false;
    const absl::Status status = Run().status();
    return absl::IsPermissionDenied(status) &&
           std::string(status.message()).find(options_.entity_path) != std::string::npos;
  }));
}

TEST_F(BadLinesTest, AFullDiskIsAnErrorAndLeavesNothing) {
  std::string text;
  for (int i = 0; i < 200'000; ++i)
    text += std::to_string(i) + "\tr1\t" + std::to_string(i + 1) + "\n";
  AddInput(text);

  // No file may grow beyond a megabyte: writes fail as they do on a full disk.
  EXPECT_TRUE(InChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    return !Run().ok();
  }));
  EXPECT_FALSE(std::filesystem::exists(options_.entity_path));
  // With room it works.
  EXPECT_THAT(Run(), IsOk());
}

}  // namespace
}  // namespace weft
