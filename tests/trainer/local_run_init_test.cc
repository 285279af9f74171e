// Runs that start from the embeddings of another one: init_path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_checks.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::CountingTrainer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::StatusIs;
using testing::TempDir;
using testing::Train;
using testing::UsesInPass;
using testing::VersionCounts;

// Two runs of equal data: the second starts from the first.
struct InitCase {
  explicit InitCase(const LocalDataOptions& data)
      : data(data), first(MakeLocalData(dir.path(), data)), second(first) {
    second.checkpoint_path = dir.File("second");
    second.init_path = first.checkpoint_path;
    second.num_epochs = 1;
  }
  const TempDir dir;
  const LocalDataOptions data;
  RunConfig first;
  RunConfig second;
};

TEST(LocalRunTest, InitPathGivesEmbeddingsAndParametersWithFreshSums) {
  for (const int partitions : {1, 3}) {
    SCOPED_TRACE(partitions);
    InitCase test({.num_partitions = partitions, .with_items = true});
    ASSERT_THAT(Train(test.first, test.data), IsOk());
    test.second.seed = 99;

    ASSERT_THAT(Train(test.second, test.data), IsOk());

    // Sums count what the second run did; vectors are the first one's.
    const absl::StatusOr<VersionCounts> counts = ReadCounts(test.second, 1);
    ASSERT_THAT(counts, IsOk());
    EXPECT_EQ(counts->tables.at("user_0"), partitions == 1 ? 1 : UsesInPass(test.data, 0));
    EXPECT_EQ(counts->parameters, partitions * partitions);
    const auto first = ReadEmbeddingsFile(
        CheckpointDir(test.first.checkpoint_path, {}).EmbeddingsPath("user", 0, 2), 5, 4);
    const auto second = ReadEmbeddingsFile(
        CheckpointDir(test.second.checkpoint_path, {}).EmbeddingsPath("user", 0, 1), 5, 4);
    ASSERT_THAT(first, IsOk());
    ASSERT_THAT(second, IsOk());
    EXPECT_TRUE(std::ranges::equal(first->embeddings.span(), second->embeddings.span()));
  }
}

TEST(LocalRunTest, InitPathIsNotReadAgainWhenTheRunContinues) {
  InitCase test({.num_partitions = 2});
  ASSERT_THAT(Train(test.first, test.data), IsOk());
  ASSERT_THAT(Train(test.second, test.data), IsOk());
  std::filesystem::remove_all(test.first.checkpoint_path);
  test.second.num_epochs = 2;

  ASSERT_THAT(Train(test.second, test.data), IsOk());

  EXPECT_EQ(ReadCounts(test.second, 2)->tables.at("user_0"), 2 * UsesInPass(test.data, 0));
}

TEST(LocalRunTest, AnInitPathOfOtherShapesIsRefusedWithBoth) {
  InitCase test({.num_partitions = 2});
  ASSERT_THAT(Train(test.first, test.data), IsOk());
  test.second.dimension = 8;

  EXPECT_THAT(LocalRun::Open(test.second, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("is 5 x 4"), HasSubstr("needs 5 x 8"))));
  EXPECT_FALSE(std::filesystem::exists(test.second.checkpoint_path));
}

TEST(LocalRunTest, AnInitPathWithMorePartitionsIsRefused) {
  const TempDir dir;
  const RunConfig first = MakeLocalData(dir.path(), {.num_partitions = 4});
  ASSERT_THAT(Train(first, {.num_partitions = 4}), IsOk());
  RunConfig second = MakeLocalData(dir.path(), {.num_partitions = 2});
  second.checkpoint_path = dir.File("second");
  second.init_path = first.checkpoint_path;

  EXPECT_THAT(LocalRun::Open(second, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("embeddings_user_2")));
}

TEST(LocalRunTest, WhatTheInitPathDoesNotHaveStartsAnewAndIsNamed) {
  const TempDir dir;
  const RunConfig first = MakeLocalData(dir.path(), {.num_partitions = 2});
  ASSERT_THAT(Train(first, {.num_partitions = 2}), IsOk());
  const LocalDataOptions data = {.num_partitions = 2, .with_items = true};
  RunConfig second = MakeLocalData(dir.path(), data);
  second.checkpoint_path = dir.File("second");
  second.init_path = first.checkpoint_path;

  const auto run = LocalRun::Open(second, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_THAT((*run)->notes(), ElementsAre(HasSubstr("entity type item")));
  EXPECT_THAT(CountingTrainer(run->get(), data).Train(), IsOk());
}

}  // namespace
}  // namespace weft
