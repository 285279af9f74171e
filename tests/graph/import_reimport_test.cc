// Importing again: the same, something else, after a crash, beside PBG's files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include "tests/graph/import_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Key;
using ::testing::Not;
using testing::StatusIs;

class ReimportTest : public testing::ImportFixture {
 protected:
  ReimportTest() {
    options_.schema.entities = {{"node", 2}};
    AddInput("a\tr1\tb\nb\tr2\tc\n");
    AddInput("c\tr1\ta\n");
  }

  absl::Status Check() const {
    return CheckDataset(options_.schema, options_.entity_path, options_.edge_paths);
  }

  void ExpectNoticed(const std::string& what) {
    const auto before = DataTree();
    EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr(what), HasSubstr("--force"))));
    EXPECT_EQ(DataTree(), before);
  }
};

TEST_F(ReimportTest, TheSameAgainDoesNothing) {
  const absl::StatusOr<ImportReport> first = Run();
  ASSERT_THAT(first, IsOk());
  EXPECT_FALSE(first->already_imported);
  const auto before = DataTree();
  const auto written =
      std::filesystem::last_write_time(options_.entity_path + "/" + DatasetManifest::kFileName);

  const absl::StatusOr<ImportReport> again = Run();

  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->already_imported);
  EXPECT_EQ(again->num_edges(), first->num_edges());
  EXPECT_EQ(again->num_entities(), first->num_entities());
  EXPECT_EQ(again->inputs[1].edges, 1);
  EXPECT_EQ(DataTree(), before);
  EXPECT_EQ(
      std::filesystem::last_write_time(options_.entity_path + "/" + DatasetManifest::kFileName),
      written);
  EXPECT_THAT(Check(), IsOk());
}

TEST_F(ReimportTest, AChangedInputIsNoticedAndForced) {
  ASSERT_THAT(Run(), IsOk());
  Write("input1.tsv", "c\tr1\td\n");

  ExpectNoticed("input1.tsv has changed");

  options_.force = true;
  ASSERT_THAT(Run(), IsOk());
  EXPECT_THAT(DataTree(), Not(Contains(Key(HasSubstr(".weft-import")))));
  options_.force = false;
  EXPECT_TRUE(Run()->already_imported);
}

TEST_F(ReimportTest, AChangeOfEqualSizeAndTimeIsNoticed) {
  ASSERT_THAT(Run(), IsOk());
  const auto time = std::filesystem::last_write_time(options_.inputs[1]);
  Write("input1.tsv", "c\tr2\ta\n");
  std::filesystem::last_write_time(options_.inputs[1], time);

  ExpectNoticed("input1.tsv has changed");
}

TEST_F(ReimportTest, FewerPartitionsAreNoticedAndLeaveNoOldFiles) {
  options_.schema.entities = {{"node", 4}};
  ASSERT_THAT(Run(), IsOk());
  options_.schema.entities = {{"node", 2}};

  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                HasSubstr("entities.node.num_partitions is now 2, was 4")));
  ExpectNoticed("entities.node.num_partitions is now 2, was 4");

  options_.force = true;
  ASSERT_THAT(Run(), IsOk());
  const auto tree = DataTree();
  EXPECT_FALSE(tree.contains("entity_count_node_3.txt"));
  EXPECT_FALSE(tree.contains("edges0/edges_3_3.h5"));
  EXPECT_TRUE(tree.contains("edges0/edges_1_1.h5"));
  EXPECT_THAT(Check(), IsOk());
}

TEST_F(ReimportTest, AnotherListOfRelationsIsNoticed) {
  ASSERT_THAT(Run(), IsOk());
  options_.schema.relations = {{"r2", 0, 0}, {"r1", 0, 0}};

  ExpectNoticed("relations[0] is now r2: node -> node, was r1: node -> node");
}

TEST_F(ReimportTest, OtherOptionsAreNoticed) {
  ASSERT_THAT(Run(), IsOk());

  options_.drop_duplicates = true;
  ExpectNoticed("--dedupe is now on, was off");
  options_.drop_duplicates = false;
  options_.parser.format.columns = {2, 0, 1, LineFormat::kNoColumn};
  ExpectNoticed("--lhs-col is now 2, was 0");
}

TEST_F(ReimportTest, WhatDoesNotMatterIsNotNoticed) {
  ASSERT_THAT(Run(), IsOk());
  options_.threads = 1;
  options_.memory_bytes = int64_t{1} << 30;
  options_.max_bad_lines = 7;

  EXPECT_TRUE(Run()->already_imported);
}

TEST_F(ReimportTest, ASmallerBudgetOfBadLinesIsNoticed) {
  options_.max_bad_lines = 1;
  Write("input0.tsv", "a\tr1\tb\nshort\n");
  ASSERT_THAT(Run(), IsOk());
  EXPECT_TRUE(Run()->already_imported);
  options_.max_bad_lines = 0;

  ExpectNoticed("1 bad lines were left out, --max-bad-lines is now 0");
}

TEST_F(ReimportTest, AMissingOrShortenedFileIsNoticed) {
  ASSERT_THAT(Run(), IsOk());
  const std::string names = EntityNamesPath(options_.entity_path, "node", 0);
  std::ofstream(names) << "[]";
  ExpectNoticed(names);

  std::filesystem::remove(EdgeBucketPath(options_.edge_paths[1], {1, 1}));
  ExpectNoticed("edges_1_1.h5 is missing");
}

TEST_F(ReimportTest, FilesOfPbgAreNotReplacedUnasked) {
  std::filesystem::create_directories(options_.entity_path);
  std::ofstream(options_.entity_path + "/entity_count_node_0.txt") << "7";

  ExpectNoticed("entity_count_node_0.txt");

  options_.force = true;
  EXPECT_THAT(Run(), IsOk());
}

TEST_F(ReimportTest, AnImportThatFailsLeavesTheOldOne) {
  ASSERT_THAT(Run(), IsOk());
  const auto before = DataTree();
  Write("input0.tsv", "short\n");
  options_.force = true;

  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument));

  EXPECT_EQ(DataTree(), before);
}

TEST_F(ReimportTest, APipeIsComparedWhenItHasBeenRead) {
  const std::string pipe = folder_.File("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  options_.inputs[0] = pipe;
  const auto run_with = [&](const std::string& text) {
    const pid_t writer = fork();
    if (writer == 0) {
      std::ofstream(pipe) << text;
      _exit(0);
    }
    auto result = Run();
    waitpid(writer, nullptr, 0);
    return result;
  };

  ASSERT_THAT(run_with("a\tr1\tb\n"), IsOk());
  const auto before = DataTree();
  EXPECT_TRUE(run_with("a\tr1\tb\n")->already_imported);
  EXPECT_THAT(run_with("a\tr1\tc\n"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(DataTree(), before);
}

TEST_F(ReimportTest, ASecondImportAtTheSameTimeIsRefused) {
  std::filesystem::create_directories(options_.entity_path);
  const int other = open(options_.entity_path.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);

  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              HasSubstr("another import is at work")));
  close(other);
  EXPECT_THAT(Run(), IsOk());
}

// Runs the import in a process that is killed at its `kill_at`-th step. False when it ended before.
bool KilledAt(const ImportOptions& options, int kill_at) {
  const pid_t child = fork();
  if (child == 0) {
    ImportOptions killed = options;
    int steps = 0;
    killed.on_step = [&](std::string_view) {
      if (steps++ == kill_at) raise(SIGKILL);
    };
    _exit(Import(killed).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

TEST_F(ReimportTest, AnImportKilledWhileItReadsLeavesNothing) {
  const pid_t child = fork();
  if (child == 0) {
    options_.on_progress = [](const ImportProgress&) { raise(SIGKILL); };
    Run().IgnoreError();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));

  for (const auto& [name, bytes] : DataTree()) EXPECT_THAT(name, HasSubstr(".weft-import/"));
  ASSERT_THAT(Run(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(options_.entity_path + "/.weft-import"));
}

TEST_F(ReimportTest, AFirstImportKilledAtAnyStepLeavesNothingThatLooksFinished) {
  options_.schema.entities = {{"node", 1}};
  ASSERT_THAT(Run(), IsOk());
  const auto finished = DataTree();
  std::filesystem::remove_all(options_.entity_path);

  int step = 0;
  for (; KilledAt(options_, step); ++step) {
    SCOPED_TRACE(step);
    // Either whole, or refused.
    auto left = DataTree();
    const bool whole = Check().ok();
    if (!left.contains(".weft-import/commit.json")) {
      std::erase_if(left, [](const auto& file) {
        return file.first.find(".weft-import/") != std::string::npos;
      });
      EXPECT_EQ(left, whole ? finished : decltype(finished){});
    } else {
      EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("run `weft import` again")));
    }

    ASSERT_THAT(Run(), IsOk());
    EXPECT_EQ(DataTree(), finished);
    std::filesystem::remove_all(options_.entity_path);
  }
  EXPECT_GE(step, 12);  // three folders: files listed, moved one by one, and the manifests
}

TEST_F(ReimportTest, AReplacementKilledAtAnyStepLeavesTheOldOrTheNewOne) {
  const auto old_input = Write("old.tsv", "a\tr1\tb\nb\tr2\tc\n");
  const auto new_input = Write("new.tsv", "x\tr1\ty\nz\tr2\tx\n");
  options_.schema.entities = {{"node", 1}};
  ImportOptions old_options = options_;
  old_options.schema.entities = {{"node", 2}};
  old_options.inputs[0] = old_input;
  old_options.force = true;
  ImportOptions new_options = options_;
  new_options.inputs[0] = new_input;
  new_options.force = true;
  ASSERT_THAT(Import(old_options), IsOk());
  const auto old_files = DataTree();
  ASSERT_THAT(Import(new_options), IsOk());
  const auto new_files = DataTree();

  for (int step = 0;; ++step) {
    SCOPED_TRACE(step);
    ASSERT_THAT(Import(old_options), IsOk());
    ASSERT_EQ(DataTree(), old_files);
    if (!KilledAt(new_options, step)) break;
    const bool committed = DataTree().contains(".weft-import/commit.json");
    if (committed) {
      EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kFailedPrecondition));
    }

    // The next import, asked for either, finds one of them whole.
    ImportOptions ask_new = new_options;
    ask_new.force = false;
    const absl::StatusOr<ImportReport> again = Import(ask_new);
    if (again.ok()) {
      EXPECT_TRUE(again->already_imported);
      EXPECT_EQ(DataTree(), new_files);
    } else {
      EXPECT_FALSE(committed);
      EXPECT_EQ(DataTree(), old_files);
    }
  }
  EXPECT_EQ(DataTree(), new_files);
}

}  // namespace
}  // namespace weft
