// Trains with the built `weft`, as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/edge_bucket_file.h"
#include "services/common/file_util.h"
#include "tests/integration/train_world.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramResult;
using testing::RunningProgram;
using testing::RunWeft;
using testing::TrainWorld;

void ExpectEqualBits(const EmbeddingPartition& a, const EmbeddingPartition& b) {
  ASSERT_EQ(a.count(), b.count());
  EXPECT_TRUE(std::ranges::equal(a.embeddings.span(), b.embeddings.span()));
  EXPECT_TRUE(std::ranges::equal(a.adagrad_sums.span(), b.adagrad_sums.span()));
}

TEST(TrainTest, TrainsEvaluatesAndReports) {
  const TrainWorld world({.config = {{"eval_fraction", 0.1}}});

  const ProgramResult result = world.Train({"--json", "stats.json"});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("complete (3/3 epochs): version 3 in model"));
  EXPECT_THAT(result.err, HasSubstr("epoch 3/3: 18,000 edges, loss "));
  EXPECT_EQ(world.CommittedVersion(), "3");
  world.ExpectPassesAreComplete(3);
  const json report = world.Json("stats.json");
  EXPECT_TRUE(report["complete"]);
  EXPECT_GT(report["edges_per_second"], 0);
  EXPECT_GT(report["peak_memory_bytes"], 0);
  ASSERT_EQ(report["epochs"].size(), 3u);
  EXPECT_EQ(report["loss"], report["epochs"][2]["loss"]);
  EXPECT_LT(report["epochs"][2]["loss"], report["epochs"][0]["loss"]);
  EXPECT_EQ(report["epochs"][2]["held_out_edges"], 2000);
  EXPECT_GT(report["epochs"][2]["eval_after"]["mrr"], report["epochs"][0]["eval_before"]["mrr"]);
}

TEST(TrainTest, VerboseAddsALineForEachBucket) {
  const TrainWorld world({.num_partitions = 2, .num_edges = 200, .config = {{"num_epochs", 1}}});

  const ProgramResult quiet = world.Train({"--set", "checkpoint_path=quiet"});
  const ProgramResult verbose = world.Train({"--set", "verbose=1"});

  EXPECT_THAT(quiet.err, Not(HasSubstr("bucket (1, 0)")));
  EXPECT_THAT(verbose.err, HasSubstr("bucket (1, 0)"));
}

TEST(TrainTest, EmptyBucketsAreNoBeginning) {
  const TrainWorld world({.num_partitions = 8, .num_edges = 5});

  EXPECT_THAT(world.Train().out, HasSubstr("starting with epoch 1/3"));
}

// Passes of a few milliseconds, each of which removes the version before it.
TEST(TrainTest, VersionsStayWhileTheyAreRead) {
  const TrainWorld world(
      {.num_partitions = 4, .num_edges = 100, .config = {{"num_epochs", 1'000'000}}});
  RunningProgram training(world.TrainCommand(), world.InFolder());
  while (training.running() && world.CommittedVersion().empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  for (int i = 0; i < 10; ++i) {
    const ProgramResult read = RunWeft({"eval", "model", "--edges", "edges"}, world.InFolder());
    EXPECT_EQ(read.exit_code, 0) << read.err;
  }

  EXPECT_TRUE(training.running());
  training.Signal(SIGTERM);
  EXPECT_EQ(training.Wait().exit_code, 1);
  // What was read is removed when it is read no longer.
  EXPECT_EQ(
      world.Train({"--set", absl::StrCat("num_epochs=", std::stoi(world.CommittedVersion()) + 1)})
          .exit_code,
      0);
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(world.File("model"))) {
    models += absl::StartsWith(entry.path().filename().string(), "model.v") ? 1 : 0;
  }
  EXPECT_EQ(models, 1);
}

// Its files are links into the folder that it lies in.
TEST(TrainTest, APreservedEpochCanBeTrainedOn) {
  const TrainWorld world(
      {.num_partitions = 2, .num_edges = 100, .config = {{"checkpoint_preservation_interval", 1}}});
  ASSERT_EQ(world.Train({"--set", "num_epochs=2"}).exit_code, 0);
  const EmbeddingPartition before = world.Embeddings(0, 1);

  const ProgramResult result = world.Train({"--set", "checkpoint_path=model/epoch_1"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(world.CommittedVersion("model/epoch_1"), "3");
  EXPECT_EQ(world.CommittedVersion(), "2");
  ExpectEqualBits(world.Embeddings(0, 1), before);
}

TEST(TrainTest, OneThreadAndASeedGiveEqualBits) {
  for (const int partitions : {1, 4}) {
    SCOPED_TRACE(absl::StrCat(partitions, " partitions"));
    const TrainWorld world({.num_partitions = partitions, .config = {{"threads", 1}}});
    for (const char* model : {"a", "b", "other"}) {
      const bool other = std::string(model) == "other";
      const ProgramResult result = world.Train({"--set", absl::StrCat("checkpoint_path=", model),
                                                "--set", absl::StrCat("seed=", other ? 8 : 7)});
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
    for (int p = 0; p < partitions; ++p) {
      ExpectEqualBits(world.Embeddings(p, 3, "a"), world.Embeddings(p, 3, "b"));
      EXPECT_FALSE(std::ranges::equal(world.Embeddings(p, 3, "a").embeddings.span(),
                                      world.Embeddings(p, 3, "other").embeddings.span()));
    }
  }
}

TEST(TrainTest, ARunInSeveralCallsHasTheBitsOfOneCall) {
  const TrainWorld world({.config = {{"threads", 1}}});
  ASSERT_EQ(world.Train({"--set", "checkpoint_path=whole"}).exit_code, 0);
  for (const char* epochs : {"num_epochs=1", "num_epochs=2", "num_epochs=3"}) {
    const ProgramResult result = world.Train({"--set", "checkpoint_path=parts", "--set", epochs});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  ExpectEqualBits(world.Embeddings(0, 3, "whole"), world.Embeddings(0, 3, "parts"));
}

TEST(TrainTest, AFinishedRunSaysSoAndGoesOnWithMoreEpochs) {
  const TrainWorld world({});
  ASSERT_EQ(world.Train().exit_code, 0);

  const ProgramResult again = world.Train({"--json", "stats.json"});

  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, "already complete (3/3 epochs)\n");
  EXPECT_TRUE(world.Json("stats.json")["complete"]);

  const ProgramResult more = world.Train({"--set", "num_epochs=4"});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(more.out, HasSubstr("going on in epoch 4/4"));
  EXPECT_EQ(world.CommittedVersion(), "4");
}

TEST(TrainTest, MoreBucketsAndChunksThanEdgesTrain) {
  const TrainWorld world({.num_partitions = 3,
                          .num_edges = 2,
                          .num_entities = 30,
                          .config = {{"num_edge_chunks", 3}, {"num_epochs", 2}}});
  for (int lhs = 0; lhs < 3; ++lhs) {
    for (int rhs = 0; rhs < 3; ++rhs) {
      const std::string path = EdgeBucketPath(world.File("edges"), {lhs, rhs});
      if (CountEdges(world.File("edges"), {lhs, rhs}).value() == 0) {
        std::filesystem::remove(path);
      }
    }
  }

  const ProgramResult result = world.Train({"--json", "stats.json"});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(world.Json("stats.json")["trained_edges"], 4);
  EXPECT_EQ(world.CommittedVersion(), "6");
}

// The optimizer states that are read hold the rate of before, and so do those of an init_path.
TEST(TrainTest, AChangedLearningRateIsUsed) {
  for (const int partitions : {1, 2}) {
    SCOPED_TRACE(absl::StrCat(partitions, " partitions"));
    const TrainWorld world({.num_partitions = partitions, .num_edges = 500});
    ASSERT_EQ(world.Train({"--set", "num_epochs=1"}).exit_code, 0);
    const EmbeddingPartition before = world.Embeddings(0, 1);

    ASSERT_EQ(world.Train({"--set", "num_epochs=2", "--set", "lr=0"}).exit_code, 0);
    const EmbeddingPartition same = world.Embeddings(0, 2);
    EXPECT_TRUE(std::ranges::equal(same.embeddings.span(), before.embeddings.span()));
    EXPECT_FALSE(std::ranges::equal(same.adagrad_sums.span(), before.adagrad_sums.span()));

    ASSERT_EQ(world
                  .Train({"--set", "checkpoint_path=other", "--set", "init_path=model", "--set",
                          "num_epochs=1", "--set", "lr=0"})
                  .exit_code,
              0);
    EXPECT_TRUE(std::ranges::equal(world.Embeddings(0, 1, "other").embeddings.span(),
                                   before.embeddings.span()));

    ASSERT_EQ(world.Train({"--set", "num_epochs=3"}).exit_code, 0);
    EXPECT_FALSE(
        std::ranges::equal(world.Embeddings(0, 3).embeddings.span(), before.embeddings.span()));
  }
}

TEST(TrainTest, AnEmptyEdgePathIsTrainedAsEmpty) {
  const TrainWorld world({.num_partitions = 2, .num_edges = 200});
  ASSERT_TRUE(WriteFileAtomically(world.File("valid.tsv"), "").ok());
  const std::vector<std::string> both = {"--set", "edge_paths=both/train,both/valid", "--set",
                                         "entity_path=both"};
  std::vector<std::string> import = {"import", "run.json",  "edges.tsv", "valid.tsv", "--lhs-col",
                                     "0",      "--rel-col", "1",         "--rhs-col", "2"};
  import.insert(import.end(), both.begin(), both.end());

  const ProgramResult imported = RunWeft(import, world.InFolder());
  EXPECT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("valid.tsv -> both/valid: 0 edges"));

  std::vector<std::string> train = both;
  train.insert(train.end(), {"--json", "stats.json"});
  const ProgramResult trained = world.Train(train);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(world.Json("stats.json")["trained_edges"], 3 * 200);

  const ProgramResult eval = RunWeft({"eval", "model", "--edges", "both/valid"}, world.InFolder());
  EXPECT_EQ(eval.exit_code, 1);
  EXPECT_THAT(eval.err, HasSubstr("nothing to evaluate: no edges in both/valid"));
}

TEST(TrainTest, TheDefaultEvalFractionIsSaidOnce) {
  const TrainWorld world({.config = {{"num_epochs", 1}, {"eval_fraction", 0.05}}});
  const ProgramResult first = world.Train();
  EXPECT_EQ(first.exit_code, 0);
  EXPECT_THAT(first.err, HasSubstr("eval_fraction is 0.05, the default"));
  const ProgramResult more = world.Train({"--set", "num_epochs=2"});
  EXPECT_EQ(more.exit_code, 0);
  EXPECT_THAT(more.err, Not(HasSubstr("eval_fraction")));
}

TEST(TrainTest, NullOrZeroEvaluationNegativesDoNotMatterWithoutHeldOutEdges) {
  for (const json& negatives : {json(nullptr), json(0)}) {
    const TrainWorld world({.config = {{"num_epochs", 1}, {"eval_num_batch_negs", negatives}}});
    const ProgramResult result = world.Train();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

TEST(TrainTest, EarlyStoppingEndsTheRunAndItStaysEnded) {
  // Nothing is learnt: the second epoch is not better than the first.
  const TrainWorld world({.config = {{"eval_fraction", 0.1},
                                     {"num_epochs", 50},
                                     {"lr", 1e-30},
                                     {"early_stopping", {{"metric", "loss"}, {"patience", 2}}}}});
  const ProgramResult result = world.Train({"--json", "stats.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("stopped early"));
  EXPECT_TRUE(world.Json("stats.json")["stopped_early"]);
  EXPECT_LT(std::stoi(world.CommittedVersion()), 50);

  EXPECT_THAT(world.Train().out, HasSubstr("already stopped early"));
}

TEST(TrainTest, SigtermStopsKeepsWhatIsCommittedAndSaysHowToGoOn) {
  const TrainWorld world({.num_partitions = 2, .config = {{"num_epochs", 100'000}}});
  RunningProgram program(world.TrainCommand(), world.InFolder());
  while (program.running() && world.CommittedVersion().empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  program.Signal(SIGTERM);
  const ProgramResult result = program.Wait();

  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("stopped in epoch "), HasSubstr("kept: version "),
                                HasSubstr("`weft train run.json` goes on from there")));
  const int version = std::stoi(world.CommittedVersion());
  const ProgramResult more = world.Train({"--set", absl::StrCat("num_epochs=", version + 2)});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  world.ExpectPassesAreComplete(version + 2);
}

TEST(TrainTest, ReferenceAndFusedTrainAlike) {
  const TrainWorld world({.config = {{"num_epochs", 1}, {"threads", 1}, {"batch_size", 200}}});
  ASSERT_EQ(world.Train({"--set", "checkpoint_path=fused", "--json", "fused.json"}).exit_code, 0);
  const ProgramResult reference = world.Train({"--set", "checkpoint_path=reference", "--set",
                                               "compute=reference", "--json", "reference.json"});
  if (reference.err.find("libweft_nn.so") != std::string::npos) {
    GTEST_SKIP() << "built without LibTorch";
  }
  ASSERT_EQ(reference.exit_code, 0) << reference.err;
  // The same batches in the same order: rounding alone differs.
  EXPECT_NEAR(world.Json("fused.json")["loss"], world.Json("reference.json")["loss"], 1e-3);
}

}  // namespace
}  // namespace weft
