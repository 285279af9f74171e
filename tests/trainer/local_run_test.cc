#include "services/trainer/local/local_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_checks.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using testing::CountingTrainer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Indices;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::ReadOrEmpty;
using testing::StatsLines;
using testing::StatusIs;
using testing::TempDir;
using testing::Train;
using testing::UsesInPass;
using testing::VersionCounts;
using testing::VersionText;
using Json = nlohmann::json;

TEST(LocalRunTest, OnePartitionIsTrainedAndCommittedEveryPass) {
  const TempDir dir;
  const LocalDataOptions data;
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_EQ(VersionText(config), "2\n");
  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 2);
  ASSERT_THAT(counts, IsOk());
  EXPECT_EQ(counts->tables.at("user_0"), 2);
  EXPECT_EQ(counts->parameters, 2);
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/model.v1.h5"));
}

TEST(LocalRunTest, EveryBucketOfEveryPassIsTrainedOnceOverSeveralPartitions) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 4, .with_items = true};
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(Train(config, data), IsOk());

  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 2);
  ASSERT_THAT(counts, IsOk());
  for (int p = 0; p < 4; ++p) {
    EXPECT_EQ(counts->tables.at(absl::StrCat("user_", p)), 2 * UsesInPass(data, p));
  }
  EXPECT_EQ(counts->tables.at("item_0"), 32);
  EXPECT_EQ(counts->parameters, 32);
}

TEST(LocalRunTest, EveryOrderTrainsEverything) {
  for (const BucketOrder order : {BucketOrder::kRandom, BucketOrder::kAffinity,
                                  BucketOrder::kInsideOut, BucketOrder::kOutsideIn}) {
    const TempDir dir;
    const LocalDataOptions data = {.num_partitions = 3};
    RunConfig config = MakeLocalData(dir.path(), data);
    config.bucket_order = order;

    ASSERT_THAT(Train(config, data), IsOk());

    EXPECT_EQ(ReadCounts(config, 2)->tables.at("user_2"), 2 * UsesInPass(data, 2));
  }
}

TEST(LocalRunTest, APartitionThatWasNeverTrainedGetsItsInitialEmbeddings) {
  const TempDir dir;
  // Partition 2 has no edges at all.
  const LocalDataOptions data = {.num_partitions = 3,
                                 .empty_buckets = {{2, 0}, {2, 1}, {2, 2}, {0, 2}, {1, 2}}};
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(Train(config, data), IsOk());

  const auto stored = ReadEmbeddingsFile(
      CheckpointDir(config.checkpoint_path, {}).EmbeddingsPath("user", 2, 2), 5, 4);
  ASSERT_THAT(stored, IsOk());
  const EmbeddingPartition initial = MakeInitialEmbeddings(1, {0, 2}, 5, 4, config.init_scale);
  EXPECT_TRUE(std::ranges::equal(stored->embeddings.span(), initial.embeddings.span()));
}

// PBG writes no table of it, and goes on without one.
TEST(LocalRunTest, ATypeThatNoRelationUsesIsInNoVersion) {
  for (const int partitions : {1, 3}) {
    SCOPED_TRACE(partitions);
    const TempDir dir;
    RunConfig config = MakeLocalData(dir.path(), {.num_partitions = partitions});
    config.entities.emplace_back().name = "unused";
    config.entities.back().num_partitions = partitions;
    for (int p = 0; p < partitions; ++p) {
      ASSERT_THAT(WriteEntityCount(config.entity_path, "unused", p, 5), IsOk());
    }
    ASSERT_THAT(Train(config, {.num_partitions = partitions}), IsOk());
    EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/embeddings_unused_0.v2.h5"));
    std::filesystem::remove_all(config.checkpoint_path + "/.weft");
    config.num_epochs = 3;

    ASSERT_THAT(Train(config, {.num_partitions = partitions}), IsOk());

    EXPECT_EQ(*CheckpointDir(config.checkpoint_path, {{"user", partitions}}).CommittedVersion(), 3);
  }
}

TEST(LocalRunTest, DataWithoutAnyEdgeIsTrainedAtOnce) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2,
                                 .empty_buckets = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}};
  const RunConfig config = MakeLocalData(dir.path(), data);

  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_EQ(VersionText(config), "2\n");
}

TEST(LocalRunTest, SeveralEdgePathsAndChunksAreVisitedInOrder) {
  const TempDir dir;
  const LocalDataOptions data = {.edge_paths = {"a", "b"}};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.num_edge_chunks = 2;
  config.num_epochs = 1;
  auto run = *LocalRun::Open(config, {});
  CountingTrainer trainer(run.get(), data);

  ASSERT_THAT(trainer.Train(), IsOk());

  std::vector<std::pair<int, int>> seen;
  for (const Grant& grant : trainer.grants) {
    seen.emplace_back(grant.position.edge_path, grant.position.edge_chunk);
    EXPECT_EQ(grant.buckets[0].expected_edges, 6);
  }
  EXPECT_THAT(seen,
              ElementsAre(std::pair(0, 0), std::pair(0, 1), std::pair(1, 0), std::pair(1, 1)));
  EXPECT_EQ(VersionText(config), "4\n");
}

TEST(LocalRunTest, ChunksAreMadeForTheLargestBucket) {
  const TempDir dir;
  LocalDataOptions data = {.num_partitions = 2, .empty_buckets = {{0, 0}}};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.max_edges_per_chunk = 5;  // buckets have 12, but for the first one

  const auto run = LocalRun::Open(config, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_EQ((*run)->progress().position.num_edge_chunks, 3);
}

TEST(LocalRunTest, ASecondProcessIsRefusedAndToldWhoTrains) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  const auto first = LocalRun::Open(config, {});
  ASSERT_THAT(first, IsOk());

  EXPECT_THAT(LocalRun::Open(config, {}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                   HasSubstr(absl::StrCat("process ", getpid()))));
}

TEST(LocalRunTest, TheFolderIsFreeWhenTheRunIsClosed) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(LocalRun::Open(config, {}), IsOk());

  EXPECT_THAT(LocalRun::Open(config, {}), IsOk());
}

TEST(LocalRunTest, ARunThatIsRefusedLeavesNothing) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.init_path = dir.File("nowhere");

  EXPECT_THAT(LocalRun::Open(config, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("init_path")));

  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path));
}

TEST(LocalRunTest, MissingDataIsNamedBeforeAnythingIsMade) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  std::filesystem::remove(config.entity_path + "/entity_count_user_0.txt");

  EXPECT_THAT(LocalRun::Open(config, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("entity_count_user_0.txt")));

  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path));
}

TEST(LocalRunTest, AFinishedRunSaysSo) {
  const TempDir dir;
  const LocalDataOptions data;
  const RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());

  const auto run = LocalRun::Open(config, {});

  ASSERT_THAT(run, IsOk());
  EXPECT_EQ((*run)->Completion(), "already complete (2/2 epochs)");
}

TEST(LocalRunTest, MoreEpochsContinueAFinishedRun) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());
  config.num_epochs = 3;

  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_EQ(VersionText(config), "3\n");
  EXPECT_EQ(ReadCounts(config, 3)->tables.at("user_0"), 3 * UsesInPass(data, 0));
}

TEST(LocalRunTest, ReleasedBucketsAreKeptInTheMiddleOfAPass) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 3, .with_items = true};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.commit_seconds = 0;
  ASSERT_THAT(Train(config, data, 5), IsOk());

  const auto run = LocalRun::Open(config, {});
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ((*run)->progress().buckets_done, 5);
  CountingTrainer trainer(run->get(), data);
  ASSERT_THAT(trainer.Train(), IsOk());

  EXPECT_EQ(trainer.grants.size(), 13u);
  const absl::StatusOr<VersionCounts> counts = ReadCounts(config, 2);
  ASSERT_THAT(counts, IsOk());
  EXPECT_EQ(counts->tables.at("user_1"), 2 * UsesInPass(data, 1));
  EXPECT_EQ(counts->tables.at("item_0"), 18);
  EXPECT_EQ(counts->parameters, 18);
}

TEST(LocalRunTest, TheSeedIsDrawnOnceAndKept) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.seed.reset();
  const uint64_t drawn = *(*LocalRun::Open(config, {}))->config().seed;
  ASSERT_THAT(Train(config, {}, 1), IsOk());

  EXPECT_EQ(*(*LocalRun::Open(config, {}))->config().seed, drawn);

  // Without the run's own state, the checkpoint's configuration knows it.
  std::filesystem::remove_all(config.checkpoint_path + "/.weft");
  EXPECT_EQ(*(*LocalRun::Open(config, {}))->config().seed, drawn);
}

TEST(LocalRunTest, TheFolderHasPbgsConfigurationAndTheEffectiveOne) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}), IsOk());

  const Json pbg = Json::parse(ReadOrEmpty(config.checkpoint_path + "/config.json"));
  const Json weft = Json::parse(ReadOrEmpty(config.checkpoint_path + "/weft_config.json"));

  EXPECT_FALSE(pbg.contains("seed"));
  EXPECT_EQ(pbg["dimension"], 4);
  EXPECT_EQ(weft["seed"], 1);
}

TEST(LocalRunTest, TheConfigurationIsNotReplacedBeforeAVersionIs) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  const std::string before = ReadOrEmpty(config.checkpoint_path + "/config.json");
  config.lr = 0.5;

  ASSERT_THAT(LocalRun::Open(config, {}), IsOk());

  EXPECT_EQ(ReadOrEmpty(config.checkpoint_path + "/config.json"), before);
}

TEST(LocalRunTest, StatisticsHaveALineForEachBucket) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_THAT(Indices(config), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  const Json line = StatsLines(config)[5];
  EXPECT_EQ(line["epoch_idx"], 1);
  EXPECT_EQ(line["edge_path_idx"], 0);
  EXPECT_EQ(line["edge_chunk_idx"], 0);
  EXPECT_EQ(line["stats"]["count"], 12);
  EXPECT_EQ(line["stats"]["metrics"]["loss"], 0.5);
  EXPECT_FALSE(line.contains("eval_stats_before"));
}

TEST(LocalRunTest, StatisticsOfAnUncommittedPassAreRemoved) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  // What a crash between the statistics and the version leaves; and a torn line.
  std::ofstream(config.checkpoint_path + "/training_stats.json", std::ios::app)
      << R"({"lhs_partition": 0, "rhs_partition": 0, "index": 1, "stats": {}})"
      << "\n"
      << R"({"lhs_part)";

  ASSERT_THAT(Train(config, {}), IsOk());

  EXPECT_THAT(Indices(config), ElementsAre(0, 1));
}

TEST(LocalRunTest, RepeatedStatisticsAreRemoved) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}), IsOk());
  const std::string path = config.checkpoint_path + "/training_stats.json";
  const std::string lines = ReadOrEmpty(path);
  ASSERT_THAT(WriteFileAtomically(path, lines + lines), IsOk());

  ASSERT_THAT(LocalRun::Open(config, {}), IsOk());

  EXPECT_THAT(Indices(config), ElementsAre(0, 1));
}

TEST(LocalRunTest, VersionsArePreservedEveryFewEpochs) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.num_epochs = 5;
  config.checkpoint_preservation_interval = 2;
  ASSERT_THAT(Train(config, data), IsOk());

  RunConfig kept = config;
  for (const int epoch : {2, 4}) {
    kept.checkpoint_path = absl::StrCat(config.checkpoint_path, "/epoch_", epoch);
    EXPECT_EQ(VersionText(kept), absl::StrCat(epoch, "\n"));
    EXPECT_EQ(ReadCounts(kept, epoch)->tables.at("user_0"), epoch * UsesInPass(data, 0));
  }
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/model.v3.h5"));
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/epoch_1"));
}

TEST(LocalRunTest, ABlobIsStoredOnceAndSharedWithTheVersion) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  const RunConfig config = MakeLocalData(dir.path(), data);
  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_EQ(std::filesystem::hard_link_count(config.checkpoint_path + "/embeddings_user_0.v2.h5"),
            2u);
  int blobs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(config.checkpoint_path + "/.weft/blobs")) {
    blobs += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(blobs, 2);
}

TEST(LocalRunTest, TheSnapshotOfAPassGoesWithIt) {
  const TempDir dir;
  const LocalDataOptions data = {.num_partitions = 2};
  RunConfig config = MakeLocalData(dir.path(), data);
  config.commit_seconds = 0;
  const std::string snapshot = config.checkpoint_path + "/.weft/shared.snapshot";
  ASSERT_THAT(Train(config, data, 1), IsOk());
  EXPECT_TRUE(std::filesystem::exists(snapshot));

  ASSERT_THAT(Train(config, data), IsOk());

  EXPECT_FALSE(std::filesystem::exists(snapshot));
}

TEST(LocalRunTest, EarlyStoppingEndsTheRun) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.num_epochs = 50;
  config.early_stopping = RunConfig::EarlyStopping{EarlyStoppingMetric::kLoss, 2};

  // The loss never changes: the first epoch stays the best; it began with version 0, which has no
  // files.
  ASSERT_THAT(Train(config, {}), IsOk());

  EXPECT_EQ(VersionText(config), "3\n");
  EXPECT_EQ((*LocalRun::Open(config, {}))->Completion(),
            "already stopped early, after 3 of 50 epochs");
}

TEST(LocalRunTest, EarlyStoppingKeepsTheBestVersion) {
  const TempDir dir;
  RunConfig config = MakeLocalData(dir.path(), {});
  config.num_epochs = 50;
  config.early_stopping = RunConfig::EarlyStopping{EarlyStoppingMetric::kLoss, 2};
  auto run = *LocalRun::Open(config, {});
  CountingTrainer trainer(run.get(), {});
  trainer.losses = {5, 4, 3, 6, 6, 6};  // by epoch: the third began with version 2

  ASSERT_THAT(trainer.Train(), IsOk());

  EXPECT_EQ(VersionText(config), "5\n");
  RunConfig best = config;
  best.checkpoint_path += "/epoch_2";
  EXPECT_EQ(VersionText(best), "2\n");
  EXPECT_EQ(ReadCounts(best, 2)->tables.at("user_0"), 2);
  run.reset();
  EXPECT_EQ((*LocalRun::Open(config, {}))->Completion(),
            "already stopped early, after 5 of 50 epochs (the best is kept as epoch_2)");
}

TEST(LocalRunTest, LeftoversOfKilledWritersAreRemoved) {
  const TempDir dir;
  const RunConfig config = MakeLocalData(dir.path(), {});
  ASSERT_THAT(Train(config, {}, 1), IsOk());
  const std::string left = config.checkpoint_path + "/embeddings_user_0.v2.h5.tmp.77";
  std::ofstream(left) << "half";
  std::ofstream(config.checkpoint_path + "/model.v2.h5") << "not committed";

  ASSERT_THAT(LocalRun::Open(config, {}), IsOk());

  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_FALSE(std::filesystem::exists(config.checkpoint_path + "/model.v2.h5"));
}

}  // namespace
}  // namespace weft
