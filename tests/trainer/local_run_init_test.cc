// Runs that start from the embeddings of another one: init_path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_init_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_checks.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::CountingTrainer;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::LocalDataOptions;
using ::testing::Lt;
using testing::MakeLocalData;
using ::testing::Not;
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

// As PBG's users make it: the vectors of some types, and nothing else.
TEST(LocalRunTest, AnInitPathMayBeAFolderOfFilesOfVersion0) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2, .with_items = true};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.init_path = dir.File("by_hand");
  ASSERT_THAT(MakeDirectories(*config.init_path), IsOk());
  EXPECT_THAT(LocalRun::Open(config, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("embeddings_TYPE_PARTITION.v0.h5")));
  for (const int partition : {0, 1}) {
    EmbeddingPartition table(5, 4);
    std::ranges::fill(table.embeddings.span(), static_cast<float>(3 + partition));
    ASSERT_THAT(WriteEmbeddingsFile(
                    CheckpointDir(*config.init_path, {}).EmbeddingsPath("user", partition, 0),
                    table, 0.1, {}),
                IsOk());
  }

  ASSERT_THAT(Train(config, data), IsOk());

  const auto trained = ReadEmbeddingsFile(
      CheckpointDir(config.checkpoint_path, {}).EmbeddingsPath("user", 1, 2), 5, 4);
  ASSERT_THAT(trained, IsOk());
  EXPECT_THAT(trained->embeddings.span(), Each(4.0f));
}

// The data of the first run, with names; its vectors say where they were.
RunConfig NamedRun(const TempDir& dir, bool dynamic) {
  RunConfig config = MakeLocalData(dir.File("first"), {.num_partitions = 2});
  config.dynamic_relations = dynamic;
  config.checkpoint_path = dir.File("first/by_hand");
  EXPECT_THAT(MakeDirectories(config.checkpoint_path), IsOk());
  EXPECT_THAT(WriteEntityNames(config.entity_path, "user", 0, {"a0", "a1", "a2", "a3", "a4"}),
              IsOk());
  EXPECT_THAT(WriteEntityNames(config.entity_path, "user", 1, {"b0", "b1", "b2", "b3", "b4"}),
              IsOk());
  const CheckpointDir files(config.checkpoint_path, {});
  for (const int partition : {0, 1}) {
    EmbeddingPartition table(5, 4);
    for (int row = 0; row < 5; ++row) {
      std::ranges::fill(table.embeddings.row(row), static_cast<float>(10 * partition + row));
    }
    EXPECT_THAT(WriteEmbeddingsFile(files.EmbeddingsPath("user", partition, 0), table, 0.1, {}),
                IsOk());
  }
  EXPECT_THAT(WriteFileAtomically(files.ConfigPath(), RunConfigToJson(config, true)), IsOk());
  return config;
}

TEST(LocalRunTest, AnInitPathOfOtherNamesGivesItsRowsByName) {
  const TempDir dir;
  const RunConfig first = NamedRun(dir, /*dynamic=*/false);
  RunConfig second = MakeLocalData(dir.File("second"), {});
  ASSERT_THAT(WriteEntityNames(second.entity_path, "user", 0, {"b4", "new", "a0", "b0", "a4"}),
              IsOk());
  second.init_path = first.checkpoint_path;

  const auto run = LocalRun::Open(second, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_THAT((*run)->notes(),
              ElementsAre(HasSubstr("has no 1 of 5 entities of type user by these names")));
  ASSERT_THAT(CountingTrainer(run->get(), {}).Train(), IsOk());
  const auto trained = ReadEmbeddingsFile(
      CheckpointDir(second.checkpoint_path, {}).EmbeddingsPath("user", 0, 2), 5, 4);
  ASSERT_THAT(trained, IsOk());
  EXPECT_THAT(trained->embeddings.row(0), Each(14.0f));
  EXPECT_THAT(trained->embeddings.row(1), Each(Not(0.0f)));
  EXPECT_THAT(trained->embeddings.row(1), Each(AllOf(Gt(-0.1f), Lt(0.1f))));
  EXPECT_THAT(trained->embeddings.row(2), Each(0.0f));
  EXPECT_THAT(trained->embeddings.row(3), Each(10.0f));
  EXPECT_THAT(trained->embeddings.row(4), Each(4.0f));
}

TEST(LocalRunTest, AnInitPathOfOtherDynamicRelationsGivesTheirParametersByName) {
  const TempDir dir;
  const RunConfig first = NamedRun(dir, /*dynamic=*/true);
  ASSERT_THAT(WriteRelationNames(first.entity_path, {"likes", "knows"}), IsOk());
  constexpr char kName[] = "relations/0/operator/rhs/translations";
  ParameterSet stored;
  Parameter& from = stored.Add(kName, {2, 4}, 2, 4);
  std::ranges::fill(from.values.row(0), 1.0f);
  std::ranges::fill(from.values.row(1), 2.0f);
  ASSERT_THAT(
      WriteModelFile(CheckpointDir(first.checkpoint_path, {}).ModelPath(0), stored, 0.1, {}),
      IsOk());
  RunConfig second = first;
  second.entity_path = dir.File("second");
  second.init_path = first.checkpoint_path;
  std::filesystem::copy(first.entity_path, second.entity_path);
  ASSERT_THAT(WriteRelationCount(second.entity_path, 3), IsOk());
  ASSERT_THAT(WriteRelationNames(second.entity_path, {"knows", "new", "likes"}), IsOk());

  const auto data = ReadLocalData(second);
  ASSERT_THAT(data, IsOk());
  const auto init = LocalInitCheckpoint::Open(second, *data);
  ASSERT_THAT(init, IsOk());
  SharedState live;
  Parameter& to = live.parameters.Add(kName, {3, 4}, 3, 4);
  std::ranges::fill(to.values.span(), 7.0f);
  ASSERT_THAT(init->ReadShared(&live), IsOk());

  EXPECT_THAT(init->missing(), ElementsAre(HasSubstr("1 of 3 relations")));
  EXPECT_THAT(to.values.row(0), Each(2.0f));
  EXPECT_THAT(to.values.row(1), Each(7.0f));
  EXPECT_THAT(to.values.row(2), Each(1.0f));
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
