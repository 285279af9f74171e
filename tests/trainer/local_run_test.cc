#include "services/trainer/local/local_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/entity_files.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/local_run_fixture.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using testing::CountingTrainer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::LocalDataOptions;
using testing::MakeLocalData;
using testing::ReadCounts;
using testing::StatusIs;
using testing::TempDir;
using testing::UsesInPass;
using testing::VersionCounts;

using Json = nlohmann::json;

std::string ReadOrEmpty(const std::string& path) { return ReadFile(path).value_or(""); }

// Opens the run and trains it, to its end or for some grants.
absl::Status Train(const RunConfig& config, const LocalDataOptions& data, int grants = INT32_MAX) {
  WEFT_ASSIGN_OR_RETURN(const auto run, LocalRun::Open(config, {}));
  return CountingTrainer(run.get(), data).Train(grants);
}

// Every file below a folder with its contents.
std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "lock") continue;
    contents[entry.path().string()] = ReadOrEmpty(entry.path().string());
  }
  return contents;
}

// Opening with `config` fails like `matcher` and changes nothing in the checkpoint folder.
template <typename Matcher>
void ExpectRefused(const RunConfig& config, const Matcher& matcher) {
  const auto before = Contents(config.checkpoint_path);
  EXPECT_THAT(LocalRun::Open(config, {}), matcher);
  EXPECT_EQ(Contents(config.checkpoint_path), before);
}

std::vector<Json> StatsLines(const RunConfig& config) {
  std::vector<Json> lines;
  const std::string text = ReadOrEmpty(config.checkpoint_path + "/training_stats.json");
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(Json::parse(line));
  }
  return lines;
}

std::vector<int64_t> Indices(const RunConfig& config) {
  std::vector<int64_t> indices;
  for (const Json& line : StatsLines(config)) indices.push_back(line["index"]);
  return indices;
}

std::string VersionText(const RunConfig& config) {
  return ReadOrEmpty(config.checkpoint_path + "/checkpoint_version.txt");
}

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
