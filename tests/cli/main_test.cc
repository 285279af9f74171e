// The program itself: versions, help, what it says about mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/testing/run_program.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing::ProgramResult;
using testing::RunProgram;
using testing::RunWeft;

TEST(WeftTest, VersionIsOneLineOnStandardOutput) {
  const ProgramResult result = RunWeft({"--version"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, MatchesRegex("weft [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_EQ(result.err, "");
}

TEST(WeftTest, HelpHasAnExampleOfEveryCommand) {
  const ProgramResult result = RunWeft({"--help"});

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("Examples:\n  weft "));
  for (const std::string command :
       {"config init", "config check", "import", "plan", "train", "eval", "export", "neighbors",
        "score", "cluster up", "cluster pause", "status", "checkpoint list"}) {
    SCOPED_TRACE(command);
    std::vector<std::string> arguments = absl::StrSplit(command, ' ');
    EXPECT_THAT(result.out, HasSubstr("\n  weft " + arguments[0] + " "));
    arguments.push_back("--help");
    const ProgramResult help = RunWeft(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("Example:\n  weft " + command + " "));
  }
}

// Loading it takes most of a second, and only commands that compute with it need it.
TEST(WeftTest, LinksNoLibTorch) {
  const ProgramResult result = RunProgram({"/usr/bin/ldd", testing::WeftPath()});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("libc.so"));
  EXPECT_THAT(result.out, Not(HasSubstr("torch")));
}

TEST(WeftTest, WithoutACommandPrintsHelpAsAMistake) {
  const ProgramResult result = RunWeft({});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("Usage"));
}

TEST(WeftTest, AMistypedCommandNamesTheNearestOne) {
  const ProgramResult result = RunWeft({"confog"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("unknown command \"confog\""),
                                HasSubstr("did you mean \"config\"?")));
}

TEST(WeftTest, AMistypedCommandOfACommandNamesTheNearestOne) {
  const ProgramResult result = RunWeft({"config", "chek"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean \"check\"?"));
}

TEST(WeftTest, AMissingArgumentNamesTheCommandAndIt) {
  const ProgramResult result = RunWeft({"config", "check"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("weft config check: CONFIG is required"));
}

TEST(WeftTest, AnUnknownFlagIsAMistake) {
  const ProgramResult result = RunWeft({"config", "check", "run.json", "--frobnicate"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--frobnicate"));
}

ProgramResult RunInShell(const std::string& command, const std::string& folder = "") {
  return RunProgram({"/bin/sh", "-c", command, testing::WeftPath()}, {.folder = folder});
}

TEST(WeftTest, WhatCannotBePrintedIsAFailure) {
  const ProgramResult result = RunInShell("\"$0\" --help > /dev/full");

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("weft: cannot write to standard output"));
}

TEST(WeftTest, AClosedStandardInputIsNotAnEmptyOne) {
  const ProgramResult result = RunInShell("\"$0\" config init - <&-");

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("standard input"));
}

TEST(WeftTest, AFolderIsNoConfiguration) {
  const ProgramResult result = RunWeft({"config", "check", "/"});

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace weft
