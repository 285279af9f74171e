#include "services/common/run_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "services/common/file_util.h"
#include "tests/common/config_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

// What PBG writes into the folder of a checkpoint.
constexpr char kPbgConfig[] = R"({
    "entities": {"all": {"num_partitions": 1, "featurized": false, "dimension": null}},
    "relations": [{"name": "r", "lhs": "all", "rhs": "all", "weight": 1.0, "operator": "none",
                   "all_negs": false}],
    "dimension": 10, "init_scale": 0.001, "max_norm": null, "global_emb": true,
    "comparator": "cos", "bias": false, "loss_fn": "ranking", "margin": 0.1,
    "regularization_coef": 0.0, "regularizer": "N3",
    "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c", "init_path": null,
    "checkpoint_preservation_interval": null,
    "num_epochs": 1, "num_edge_chunks": null, "max_edges_per_chunk": 1000000000,
    "bucket_order": "inside_out", "workers": null, "batch_size": 1000, "num_batch_negs": 50,
    "num_uniform_negs": 50, "disable_lhs_negs": false, "disable_rhs_negs": false,
    "lr": 0.01, "relation_lr": null, "eval_fraction": 0.05, "eval_num_batch_negs": 1000,
    "eval_num_uniform_negs": 1000, "background_io": false, "verbose": 0, "hogwild_delay": 2.0,
    "dynamic_relations": false, "num_machines": 1, "num_partition_servers": -1,
    "distributed_init_method": null, "distributed_tree_init_order": true, "num_gpus": 0,
    "num_groups_for_partition_server": 16, "num_groups_per_sharded_partition_server": 1,
    "partition_shard_size": 250, "half_precision": false
})";

std::string PbgWith(const std::string& from, const std::string& to) {
  const std::string changed = absl::StrReplaceAll(kPbgConfig, {{from, to}});
  EXPECT_NE(changed, kPbgConfig) << from;
  return changed;
}

TEST(RunConfigTest, PbgsOwnFileIsAcceptedSilently) {
  const auto result = ParseRunConfig(kPbgConfig, "config.json");

  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings, IsEmpty());
}

TEST(RunConfigTest, DefaultsArePbgs) {
  // Every default that PBG writes out equals ours: the texts of both configurations agree. But for
  // one: shards of 250 MiB would leave most partitions whole, on one stream.
  const auto full = ParseRunConfig(
      PbgWith("\"partition_shard_size\": 250", "\"partition_shard_size\": 64"), "config.json");
  const auto bare = ParseRunConfig(R"({
    "entities": {"all": {"num_partitions": 1}},
    "relations": [{"name": "r", "lhs": "all", "rhs": "all"}],
    "dimension": 10, "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c"})",
                                   "bare.json");

  ASSERT_THAT(full, IsOk());
  ASSERT_THAT(bare, IsOk());
  EXPECT_EQ(RunConfigToJson(full->config, false), RunConfigToJson(bare->config, false));
}

TEST(RunConfigTest, KeysWithoutEffectGiveOneWarning) {
  const std::string text = absl::StrReplaceAll(
      kPbgConfig,
      {{"\"num_partition_servers\": -1", "\"num_partition_servers\": 2"},
       {"\"background_io\": false", "\"background_io\": true"},
       {"\"distributed_init_method\": null", "\"distributed_init_method\": \"tcp://host:1\""}});
  const auto result = ParseRunConfig(text, "config.json");

  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->warnings,
              ElementsAre("without effect in Weft: background_io, num_partition_servers, "
                          "distributed_init_method"));
}

TEST(RunConfigTest, OnePartitionOnTwoMachinesTrainsHereWithAWarning) {
  const auto result =
      ParseRunConfig(PbgWith("\"num_machines\": 1", "\"num_machines\": 2"), "config.json");

  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_THAT(result->warnings[0], AllOf(HasSubstr("num_machines is 2"), HasSubstr("one process")));
}

TEST(RunConfigTest, GraphicsProcessorsAndHalfPrecisionAreErrors) {
  EXPECT_THAT(ParseRunConfig(PbgWith("\"num_gpus\": 0", "\"num_gpus\": 1"), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("num_gpus: must be 0, is 1")));
  EXPECT_THAT(
      ParseRunConfig(PbgWith("\"half_precision\": false", "\"half_precision\": true"), "x"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("half_precision: must be false")));
}

TEST(RunConfigTest, LogisticLossWithCosIsAWarning) {
  const auto result = ParseSmall({"loss_fn=logistic"});

  ASSERT_THAT(result, IsOk());
  ASSERT_EQ(result->warnings.size(), 1u);
  EXPECT_THAT(result->warnings[0], AllOf(HasSubstr("logistic"), HasSubstr("cos")));
}

TEST(RunConfigTest, PbgsOldMixedCaseKeysAreUnderstood) {
  const auto result = ParseRunConfig(
      absl::StrReplaceAll(
          kPbgConfig, {{"num_epochs\": 1", "numEpochs\": 3"}, {"num_partitions", "numPartitions"}}),
      "config.json");

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.num_epochs, 3);
}

TEST(RunConfigTest, PathsMayBeUrlsOfFiles) {
  const auto result = ParseSmall({"entity_path=file:///data/e", "edge_paths=file://a,b",
                                  "checkpoint_path=file://m", "init_path=file://i"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entity_path, "/data/e");
  EXPECT_THAT(result->config.edge_paths, ElementsAre("a", "b"));
  EXPECT_EQ(result->config.checkpoint_path, "m");
  EXPECT_EQ(result->config.init_path, "i");
}

TEST(RunConfigTest, TheSameKeyInTwoSpellingsAppearsTwice) {
  EXPECT_THAT(ParseRunConfig(PbgWith("\"num_epochs\": 1", "\"num_epochs\": 1, \"numEpochs\": 3"),
                             "config.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("numEpochs: appears twice")));
}

TEST(RunConfigTest, KeysThatAppearTwiceAreRefusedEverywhere) {
  EXPECT_THAT(ParseRunConfig(R"({
    "entities": {"all": {"num_partitions": 1},
                 "all": {"num_partitions": 2}},
    "relations": [{"name": "r", "lhs": "all",
                   "lhs": "all", "rhs": "all"}],
    "dimension": 10,
    "dimension": 12, "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c"})",
                             "run.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "run.json: 3 problems\n"
                       "  run.json:3: entities.all: appears twice, first in line 2\n"
                       "  run.json:5: relations[0].lhs: appears twice, first in line 4\n"
                       "  run.json:7: dimension: appears twice, first in line 6"));
}

TEST(RunConfigTest, ProblemsBetweenKeysHaveTheLineOfTheKey) {
  EXPECT_THAT(ParseRunConfig(R"({
    "entities": {"all": {}},
    "relations": [
      {"name": "r", "lhs": "all",
       "rhs": "none"}],
    "dimension": 10, "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c",
    "batch_size": 75})",
                             "run.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("run.json:5: relations[0].rhs: unknown entity type"),
                             HasSubstr("run.json:7: batch_size: must be a multiple"))));
}

TEST(RunConfigTest, EveryRequiredKeyIsAskedFor) {
  EXPECT_THAT(ParseRunConfig("{}", "run.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "run.json: 6 problems\n"
                       "  run.json: entities: is missing\n"
                       "  run.json: relations: is missing\n"
                       "  run.json: dimension: is missing\n"
                       "  run.json: entity_path: is missing\n"
                       "  run.json: edge_paths: is missing\n"
                       "  run.json: checkpoint_path: is missing"));
}

TEST(RunConfigTest, UnknownKeysNameTheNearest) {
  EXPECT_THAT(ParseRunConfig(PbgWith("\"margin\"", "\"margn\""), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("margn: unknown key; did you mean \"margin\"?")));
  EXPECT_THAT(ParseRunConfig(PbgWith("\"lr\"", "\"learning_rate\""), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("did you mean \"lr\"?")));
}

TEST(RunConfigTest, AHostileTextGivesABoundedMessage) {
  std::string text = "{";
  for (int i = 0; i < 20000; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"k", i, "\":", i);
  text += ", \"entities\": []}";

  const auto result = ParseRunConfig(text, "x");

  EXPECT_THAT(result,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1000 problems or more")));
  EXPECT_LT(result.status().message().size(), 200'000u);
}

TEST(RunConfigTest, EntityTypesKeepTheirOrder) {
  const auto result = ParseRunConfig(R"({
    "entities": {"z": {}, "a": {}, "m": {}},
    "relations": [{"name": "r", "lhs": "m", "rhs": "z"}, {"name": "s", "lhs": "a", "rhs": "a"}],
    "dimension": 10, "entity_path": "e", "edge_paths": ["p"], "checkpoint_path": "c"})",
                                     "run.json");

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.entities[0].name, "z");
  EXPECT_EQ(result->config.entities[1].name, "a");
  EXPECT_EQ(result->config.relations[0].lhs, 2);
  EXPECT_EQ(result->config.relations[0].rhs, 0);
  EXPECT_EQ(result->config.relations[1].lhs, 1);
}

TEST(RunConfigTest, WritingAndReadingKeepsEverything) {
  const auto first = ParseSmall({"lr=0.1",
                                 "relation_lr=0.05",
                                 "max_norm=1.5",
                                 "init_path=x",
                                 "num_edge_chunks=3",
                                 "bucket_order=affinity",
                                 "workers=3",
                                 "threads=2",
                                 "seed=18446744073709551615",
                                 "compute=reference",
                                 "resident_partitions=4",
                                 "prefetch=false",
                                 "commit_seconds=0.5",
                                 "lease_seconds=2",
                                 "stall_timeout=0",
                                 "max_bucket_attempts=3",
                                 "partition_replicas=2",
                                 "store_lost_after=60",
                                 "checkpoint_minutes=0.5",
                                 "partition_shard_size=250",
                                 "param_sync.interval=0.5",
                                 "param_sync.max_bytes_per_second=1000000",
                                 "max_param_staleness=5",
                                 "init_tree_wait=7",
                                 "distributed_tree_init_order=false",
                                 "early_stopping.metric=mrr",
                                 "early_stopping.patience=5",
                                 "entities.user.dimension=8",
                                 "relations.1.operator=affine",
                                 "relations.0.all_negs=true",
                                 "eval_num_batch_negs=null",
                                 "checkpoint_preservation_interval=10",
                                 "verbose=1",
                                 "hogwild_delay=0"});
  ASSERT_THAT(first, IsOk());
  const std::string text = RunConfigToJson(first->config, /*pbg_keys_only=*/false);

  const auto second = ParseRunConfig(text, "again.json");

  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(RunConfigToJson(second->config, false), text);
  EXPECT_EQ(second->config.seed, 18446744073709551615u);
  EXPECT_EQ(second->config.early_stopping->patience, 5);
  EXPECT_EQ(second->config.lease_seconds, 2);
  EXPECT_EQ(second->config.max_bucket_attempts, 3);
  EXPECT_EQ(second->config.checkpoint_minutes, 0.5);
  EXPECT_EQ(second->config.partition_shard_size, 250);
  EXPECT_EQ(second->config.param_sync.interval, 0.5);
  EXPECT_EQ(second->config.param_sync.max_bytes_per_second, 1'000'000);
  EXPECT_EQ(second->config.max_param_staleness, 5);
  EXPECT_EQ(second->config.init_tree_wait, 7);
  EXPECT_FALSE(second->config.distributed_tree_init_order);
  EXPECT_EQ(second->config.eval_num_batch_negs, std::nullopt);
  EXPECT_EQ(second->config.bucket_order, BucketOrder::kAffinity);
  EXPECT_EQ(second->config.compute, Compute::kReference);
  EXPECT_FALSE(second->config.prefetch);
}

TEST(RunConfigTest, ForPbgOnlyItsKeysAreWritten) {
  const auto result = ParseSmall({"seed=7", "threads=2"});
  ASSERT_THAT(result, IsOk());
  const std::string text = RunConfigToJson(result->config, /*pbg_keys_only=*/true);

  for (const char* ours :
       {"seed", "threads", "compute", "resident_partitions", "prefetch", "commit_seconds",
        "early_stopping", "lease_seconds", "stall_timeout", "max_bucket_attempts",
        "partition_replicas", "store_lost_after", "checkpoint_minutes", "param_sync",
        "max_param_staleness", "init_tree_wait"}) {
    EXPECT_THAT(text, Not(HasSubstr(absl::StrCat("\"", ours, "\"")))) << ours;
  }
  EXPECT_THAT(text, HasSubstr("\"lr\": 0.01"));
  EXPECT_THAT(text, HasSubstr("\"hogwild_delay\": 2.0"));
}

TEST(RunConfigTest, PartitionsAreThoseOfTheTypesOnASide) {
  const auto result = ParseSmall({"entities.item.num_partitions=4"});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.NumPartitions(Side::kLhs), 1);
  EXPECT_EQ(result->config.NumPartitions(Side::kRhs), 4);
  EXPECT_TRUE(result->config.UsesEntityType(1, Side::kRhs));
  EXPECT_FALSE(result->config.UsesEntityType(1, Side::kLhs));
}

TEST(RunConfigTest, ThreadsComeBeforeWorkersAndBothBeforeTheMachine) {
  RunConfig config;
  EXPECT_GE(config.NumThreads(), 1);
  config.workers = 7;
  EXPECT_EQ(config.NumThreads(), 7);
  config.threads = 3;
  EXPECT_EQ(config.NumThreads(), 3);
}

TEST(RunConfigTest, EveryKeyIsInTheDocumentation) {
  const char* const source = std::getenv("WEFT_SOURCE_DIR");  // set by ctest
  if (source == nullptr) GTEST_SKIP() << "WEFT_SOURCE_DIR is not set";
  const auto page = ReadFile(absl::StrCat(source, "/docs/configuration.md"));
  ASSERT_THAT(page, IsOk());
  for (const std::string& key : RunConfigKeys()) {
    EXPECT_THAT(*page, HasSubstr(absl::StrCat("`", key, "`")));
  }
}

TEST(LoadRunConfigTest, ReadsAFile) {
  const testing::TempDir folder;
  std::ofstream(folder.File("run.json")) << kSmallConfig;

  const auto result = LoadRunConfig(folder.File("run.json"), {{"lr=3"}});

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->config.lr, 3);
  EXPECT_EQ(result->config.entity_path, "data");
}

TEST(LoadRunConfigTest, AMissingFileIsNotFound) {
  EXPECT_THAT(LoadRunConfig("/none/run.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/none/run.json")));
}

TEST(LoadRunConfigTest, AFolderIsNoConfiguration) {
  const testing::TempDir folder;

  EXPECT_THAT(LoadRunConfig(folder.path()), Not(IsOk()));
}

}  // namespace
}  // namespace weft
