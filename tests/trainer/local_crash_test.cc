// A run is killed after each of its steps in turn, and opened again: nothing that was acknowledged
// is lost, and every bucket of every pass is trained exactly once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/common/file_util.h"
#include "services/trainer/local/local_run.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using testing::CountingTrainer;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::TempDir;
using testing::UsesInPass;
using testing::VersionCounts;

constexpr int kKilled = 42;

// Trains in a child process, which ends without any clean-up at its step number `last_step`.
// Says which step that was, how many releases had been acknowledged, and whether the child got to
// the end instead.
struct Child {
  std::string step;
  int acknowledged = 0;
  bool finished = false;
};

Child TrainUntilStep(const RunConfig& config, const LocalDataOptions& data, int last_step) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(fds[0]);
    int steps = 0;
    const auto step = [&](const std::string& name) {
      const std::string line = name + "\n";
      if (write(fds[1], line.data(), line.size()) < 0) _exit(1);
      if (++steps == last_step) _exit(kKilled);
    };
    const auto run = LocalRun::Open(
        config, {.on_commit = nullptr,
                 .on_step = [&](absl::string_view name) { step(std::string(name)); }});
    if (!run.ok()) _exit(2);
    step("opened");
    CountingTrainer trainer(run->get(), data);
    trainer.on_step = step;
    _exit(trainer.Train().ok() ? 0 : 3);
  }
  close(fds[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t n; (n = read(fds[0], buffer, sizeof buffer)) > 0;) {
    output.append(buffer, static_cast<size_t>(n));
  }
  close(fds[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  const int code = WEXITSTATUS(status);
  EXPECT_TRUE(code == 0 || code == kKilled) << "the child failed with " << code;
  Child result;
  result.finished = code == 0;
  for (const absl::string_view line : absl::StrSplit(output, '\n', absl::SkipEmpty())) {
    result.step = std::string(line);
    result.acknowledged += line == "released" ? 1 : 0;
  }
  return result;
}

// The tables of partitioned types are exact; what is shared has each bucket at least once, and one
// too many for each kill at most.
void ExpectTrainedExactly(const RunConfig& config, const LocalDataOptions& data, int64_t version,
                          int kills) {
  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, version);
  ASSERT_THAT(counts, IsOk());
  const auto passes = static_cast<double>(version);
  const double buckets = passes * data.num_partitions * data.num_partitions;
  if (data.num_partitions > 1) {
    for (int p = 0; p < data.num_partitions; ++p) {
      EXPECT_EQ(counts->tables.at(absl::StrCat("user_", p)), passes * UsesInPass(data, p));
    }
  } else {
    EXPECT_EQ(counts->tables.at("user_0"), buckets);
    kills = 0;  // a pass of one bucket is all or nothing
  }
  EXPECT_GE(counts->parameters, buckets);
  EXPECT_LE(counts->parameters, buckets + kills);
  if (data.with_items) {
    EXPECT_EQ(counts->tables.at("item_0"), counts->parameters);
  }
}

int NumStatsLines(const RunConfig& config) {
  const std::string text = ReadFile(config.checkpoint_path + "/training_stats.json").value_or("");
  return static_cast<int>(std::ranges::count(text, '\n'));
}

class LocalCrashTest : public ::testing::TestWithParam<LocalDataOptions> {};

TEST_P(LocalCrashTest, KilledAfterAnyStepNothingIsLostAndNothingIsDoneTwice) {
  const LocalDataOptions& data = GetParam();
  const int buckets = data.num_partitions * data.num_partitions;
  for (int last_step = 1;; ++last_step) {
    const TempDir dir;
    RunConfig config = MakeLocalData(dir.path(), data);
    config.commit_seconds = 0;  // a grant for each bucket
    const Child child = TrainUntilStep(config, data, last_step);
    if (child.finished) {
      EXPECT_GT(last_step, 10);
      break;
    }
    SCOPED_TRACE(absl::StrCat("killed after step ", last_step, ": ", child.step));

    const auto run = LocalRun::Open(config, {});
    ASSERT_THAT(run, IsOk());
    const RunProgress progress = (*run)->progress();
    const int64_t done = progress.position.pass * buckets + progress.buckets_done;
    EXPECT_GE(done, child.acknowledged);
    EXPECT_LE(done, child.acknowledged + 1);
    CountingTrainer trainer(run->get(), data);
    ASSERT_THAT(trainer.Train(), IsOk());

    EXPECT_EQ(static_cast<int64_t>(trainer.grants.size()), 2 * buckets - done);
    ExpectTrainedExactly(config, data, 2, 1);
    EXPECT_EQ(NumStatsLines(config), 2 * buckets);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST_P(LocalCrashTest, KilledAgainAndAgainTheRunGetsToItsEnd) {
  const LocalDataOptions& data = GetParam();
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), data);
  config.commit_seconds = 0;
  config.num_epochs = 3;
  int kills = 0;
  // Enough steps for a bucket or a commit each time, at ever other places.
  for (; !TrainUntilStep(config, data, 11 + kills % 3).finished; ++kills) {
    ASSERT_LT(kills, 200);
  }

  EXPECT_GT(kills, 2);
  ExpectTrainedExactly(config, data, 3, kills);
  EXPECT_EQ(NumStatsLines(config), 3 * data.num_partitions * data.num_partitions);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LocalCrashTest,
    ::testing::Values(LocalDataOptions{.with_items = true},
                      LocalDataOptions{.num_partitions = 2, .with_items = true}),
    [](const auto& info) { return absl::StrCat("Partitions", info.param.num_partitions); });

}  // namespace
}  // namespace weft
