// What may change between two processes of a run, what may not, and from what a run goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/entity_files.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_checks.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::CountingTrainer;
using ::testing::ElementsAre;
using testing::ExpectRefused;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::ReadOrEmpty;
using testing::StatusIs;
using testing::TempDir;
using testing::Train;
using testing::UsesInPass;
using testing::VersionCounts;
using testing::VersionText;
using Json = nlohmann::json;

TEST(LocalRunTest, AnotherSeedIsRefused) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  config.seed = 2;

  ExpectRefused(config,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("seed: was 1, is 2")));
}

TEST(LocalRunTest, AnotherDimensionIsRefusedBeforeAnythingIsWritten) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  config.dimension = 8;

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("entities.user: dimension: was 4, is 8")));
}

TEST(LocalRunTest, ARunThatHasTrainedNothingMayChange) {
  const TempDir dir;
  LocalDataOptions data = {.num_partitions = 2};
  ASSERT_THAT(LocalRun::Open(MakeLocalData(dir.path(), data), {}), IsOk());
  data.num_partitions = 3;
  RunConfig config = MakeLocalData(dir.path(), data);
  config.seed = 2;

  EXPECT_THAT(Train(config, data), IsOk());
}

TEST(LocalRunTest, OtherPartitionsAreRefusedBeforeAnythingIsWritten) {
  const TempDir dir;
  ASSERT_THAT(Train(MakeLocalData(dir.path(), {.num_partitions = 2}), {.num_partitions = 2}),
              IsOk());
  const RunConfig config = MakeLocalData(dir.path(), {.num_partitions = 4});

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("entities.user.num_partitions: was 2, is 4")));
}

TEST(LocalRunTest, OtherEntityCountsAreRefused) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  ASSERT_THAT(WriteEntityCount(config.entity_path, "user", 0, 6), IsOk());

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("entities in partition 0: was 5, is 6")));
}

TEST(LocalRunTest, AnotherOperatorIsRefused) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  config.relations[0].operator_name = "diagonal";

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("relations[0].operator: was translation, is diagonal")));
}

TEST(LocalRunTest, ChangesAreNoticedInAFolderWithoutStateOfARun) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  std::filesystem::remove_all(config.checkpoint_path + "/.weft");
  config.dimension = 8;
  config.relations[0].operator_name = "diagonal";

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("dimension: was 4, is 8"),
                                       HasSubstr("was translation, is diagonal"))));
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/.weft"));
}

TEST(LocalRunTest, ShapesAreNoticedInAFolderWithoutAnyConfiguration) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  std::filesystem::remove_all(config.checkpoint_path + "/.weft");
  std::filesystem::remove(config.checkpoint_path + "/config.json");
  std::filesystem::remove(config.checkpoint_path + "/weft_config.json");
  config.dimension = 8;

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("is 5 x 4"), HasSubstr("want 5 x 8"))));
}

TEST(LocalRunTest, ParametersAreNoticedInAFolderWithoutAnyConfiguration) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  std::filesystem::remove_all(config.checkpoint_path + "/.weft");
  std::filesystem::remove(config.checkpoint_path + "/config.json");
  std::filesystem::remove(config.checkpoint_path + "/weft_config.json");
  config.relations[0].operator_name = "diagonal";

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("relations/0/operator/rhs/diagonal")));

  config.relations[0].operator_name = "translation";
  EXPECT_THAT(LocalRun::Open(config, {}), IsOk());
}

TEST(LocalRunTest, AMissingPartitionIsRefusedAndNeverInitialisedAgain) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {.num_partitions = 2});
  ASSERT_THAT(Train(config, {.num_partitions = 2}), IsOk());
  std::filesystem::remove(config.checkpoint_path + "/embeddings_user_1.v2.h5");

  ExpectRefused(config,
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("embeddings_user_1.v2.h5")));
}

TEST(LocalRunTest, APartitionMissingInTheMiddleOfAPassIsRefused) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {.num_partitions = 2});
  config.commit_seconds = 0;
  ASSERT_THAT(Train(config, {.num_partitions = 2}, 2), IsOk());
  const std::string blobs = config.checkpoint_path + "/.weft/blobs";
  for (const auto& entry : std::filesystem::directory_iterator(blobs)) {
    std::filesystem::remove(entry.path());
    break;
  }

  ExpectRefused(config, StatusIs(absl::StatusCode::kNotFound, HasSubstr("is missing in .weft")));
}

TEST(LocalRunTest, AnEmptyVersionFileMeansTheNewestWholeVersion) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());
  std::ofstream(config.checkpoint_path + "/checkpoint_version.txt", std::ios::trunc);
  ASSERT_THAT(LocalRun::Open(config, {}), IsOk());
  EXPECT_EQ(VersionText(config), "2\n");
  config.num_epochs = 3;

  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_EQ(VersionText(config), "3\n");
  EXPECT_EQ(ReadCounts(config, 3)->tables.at("user_0"), 3 * UsesInPass(data, 0));
}

TEST(LocalRunTest, AChangedLearningRateIsUsed) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  config.lr = 0.5;
  config.relation_lr = 0.25;

  ASSERT_THAT(Train(config, {}), IsOk());

  const Json written = Json::parse(ReadOrEmpty(config.checkpoint_path + "/config.json"));
  EXPECT_EQ(written["lr"], 0.5);
  EXPECT_EQ(written["relation_lr"], 0.25);
}

TEST(LocalRunTest, WithoutItsStateARunContinuesFromTheCommittedVersion) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2, .edge_paths = {"a", "b"}};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.commit_seconds = 0;
  ASSERT_THAT(Train(config, data, 5), IsOk());  // pass 0 and a bucket of pass 1
  std::filesystem::remove_all(config.checkpoint_path + "/.weft");

  {
    const auto run = LocalRun::Open(config, {});
    ASSERT_THAT(run, IsOk());
    EXPECT_EQ((*run)->progress().position, (PassPosition{1, 0, 1, 0, 1}));
    EXPECT_EQ((*run)->progress().buckets_done, 0);
  }
  ASSERT_THAT(Train(config, data), IsOk());

  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 4);
  ASSERT_THAT(counts, IsOk());
  EXPECT_EQ(counts->tables.at("user_0"), 4 * UsesInPass(data, 0));
  EXPECT_EQ(counts->parameters, 16);
}

// A folder with the state of one run and the files of a version that another one made.
void CopyVersion(const RunConfig& from, int64_t version, const RunConfig& to, int64_t as) {
  const CheckpointDir a(from.checkpoint_path, {});
  const CheckpointDir b(to.checkpoint_path, {});
  const auto overwrite = std::filesystem::copy_options::overwrite_existing;
  std::filesystem::copy_file(a.ModelPath(version), b.ModelPath(as), overwrite);
  for (const EntityConfig& type : from.entities) {
    for (int p = 0; p < type.num_partitions; ++p) {
      std::filesystem::copy_file(a.EmbeddingsPath(type.name, p, version),
                                 b.EmbeddingsPath(type.name, p, as), overwrite);
    }
  }
  std::ofstream(to.checkpoint_path + "/checkpoint_version.txt") << as << "\n";
}

TEST(LocalRunTest, AVersionThatAnotherProgramMadeIsContinuedFrom) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());
  CopyVersion(config, 2, config, 7);
  config.num_epochs = 8;

  const auto run = LocalRun::Open(config, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_THAT((*run)->notes(), Contains(HasSubstr("version 7 was made by another program")));
  EXPECT_EQ((*run)->progress().position.pass, 7);
  ASSERT_THAT(CountingTrainer(run->get(), data).Train(), IsOk());
  EXPECT_EQ(ReadCounts(config, (*run)->progress().position.pass)->tables.at("user_0"),
            8 * UsesInPass(data, 0));
}

TEST(LocalRunTest, APointerThatWentBackIsRefused) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}), IsOk());
  CopyVersion(config, 2, config, 1);

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 AllOf(HasSubstr("has made version 2"), HasSubstr("says 1"))));
}

TEST(LocalRunTest, TheNumberOfChunksMayChangeWhereBothHaveABoundary) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.num_edge_chunks = 4;
  ASSERT_THAT(Train(config, {}, 2), IsOk());
  config.num_edge_chunks = 6;

  const auto run = LocalRun::Open(config, {});
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ((*run)->progress().position, (PassPosition{2, 0, 0, 3, 6}));
  CountingTrainer trainer(run->get(), {});
  ASSERT_THAT(trainer.Train(), IsOk());

  int64_t edges = 0;
  for (const Grant& grant : trainer.grants) {
    edges += grant.position.epoch == 0 ? grant.buckets[0].expected_edges : 0;
  }
  EXPECT_EQ(edges, 6);  // the other half of 12
}

TEST(LocalRunTest, ANumberOfChunksThatTheRunCannotGoOnWithIsRefused) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.num_edge_chunks = 4;
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  config.num_edge_chunks = 6;

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("chunk 2 of 4")));
}

TEST(LocalRunTest, EdgesThatChangedInTheMiddleOfAPassAreRefused) {
  const TempDir dir;
  LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.commit_seconds = 0;
  ASSERT_THAT(Train(config, data, 1), IsOk());
  data.edges = 13;
  MakeLocalData(dir.path(), data);

  ExpectRefused(config, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("changed in the middle of a pass")));
}

TEST(LocalRunTest, EdgesMayChangeBetweenPasses) {
  const TempDir dir;
  LocalDataOptions data;
  const RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data, 1), IsOk());
  data.edges = 13;
  MakeLocalData(dir.path(), data);

  const auto run = LocalRun::Open(config, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_THAT((*run)->notes(), ElementsAre(HasSubstr("have changed")));
}

TEST(LocalRunTest, AFailedRunGoesOnWhenItIsStartedAgain) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  {
    const auto run = LocalRun::Open(config, {});
    ASSERT_THAT(run, IsOk());
    const auto acquired = (*run)->lock().AcquireBucket({1, {}, absl::ZeroDuration()});
    ASSERT_THAT(acquired, IsOk());
    ASSERT_THAT((*run)->lock().ReportFailure(acquired->grant->token, {{0, 0}, "loss is NaN"}),
                IsOk());
    EXPECT_THAT((*run)->lock().AcquireBucket({2, {}, absl::ZeroDuration()}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("loss is NaN")));
  }

  const auto run = LocalRun::Open(config, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_THAT((*run)->notes(), ElementsAre(HasSubstr("loss is NaN")));
  EXPECT_THAT(CountingTrainer(run->get(), {}).Train(), IsOk());
}

}  // namespace
}  // namespace weft
