// Trains with the built `weft`, as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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

// What is printed must not end up in a file that was given the number of a closed stream.
TEST(TrainTest, ClosedStandardStreamsGetNoDataFiles) {
  const TrainWorld world({.num_partitions = 2, .num_edges = 200, .config = {{"verbose", 1}}});

  const ProgramResult result = testing::RunProgram(
      {"/bin/sh", "-c", "\"$0\" train run.json <&- >&- 2>&-", testing::WeftPath()},
      world.InFolder());

  EXPECT_EQ(result.exit_code, 0);
  world.ExpectPassesAreComplete(3);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(world.File("model"))) {
    if (!entry.is_regular_file()) continue;
    EXPECT_THAT(*ReadFile(entry.path().string()), Not(HasSubstr("starting with epoch")))
        << entry.path();
  }
}

TEST(TrainTest, EmptyBucketsAreNoBeginning) {
  const TrainWorld world({.num_partitions = 8, .num_edges = 5});

  EXPECT_THAT(world.Train().out, HasSubstr("starting with epoch 1/3"));
}

// The last update has been in no score: that of one batch is the whole training.
TEST(TrainTest, AnUpdateThatOverflowsIsNoCheckpoint) {
  for (const int partitions : {1, 2}) {
    SCOPED_TRACE(absl::StrCat(partitions, " partitions"));
    const TrainWorld world({.num_partitions = partitions,
                            .num_edges = 10,
                            .config = {{"lr", 3e38}, {"num_epochs", 1}}});

    const ProgramResult result = world.Train();

    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("bucket ("), HasSubstr("lower lr")));
    EXPECT_EQ(world.CommittedVersion(), "");
  }
}

TEST(TrainTest, TwoThousandOperatorsNeedFewOpenFiles) {
  json relations = json::array();
  for (int r = 0; r < 2000; ++r) {
    relations.push_back({{"name", absl::StrCat("r", r)},
                         {"lhs", "user"},
                         {"rhs", "user"},
                         {"operator", "diagonal"}});
  }
  relations[0]["name"] = "knows";
  const TrainWorld world({.num_partitions = 2,
                          .num_edges = 100,
                          .config = {{"relations", relations}, {"num_epochs", 1}}});

  const ProgramResult result = testing::RunProgram(
      {"/bin/sh", "-c",
       "ulimit -n 256 && "
       "\"$0\" import run.json edges.tsv --lhs-col 0 --rel-col 1 --rhs-col 2 --force && "
       "\"$0\" train run.json --set checkpoint_path=again && "
       "\"$0\" eval again --edges edges && "
       "\"$0\" export again --to tsv -o exported",
       testing::WeftPath()},
      world.InFolder());

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("exported/relations.tsv: 2,000 operator parameters"));
}

// As many entities, but row 0 is another one now.
TEST(TrainTest, NamesOfAnotherImportAreRefused) {
  const TrainWorld world({.num_edges = 100});
  ASSERT_EQ(world.Train().exit_code, 0);
  std::vector<std::string> lines =
      absl::StrSplit(*ReadFile(world.File("edges.tsv")), '\n', absl::SkipEmpty());
  std::ranges::reverse(lines);
  ASSERT_TRUE(WriteFileAtomically(world.File("edges.tsv"), absl::StrJoin(lines, "\n")).ok());
  ASSERT_EQ(RunWeft({"import", "run.json", "edges.tsv", "--lhs-col", "0", "--rel-col", "1",
                     "--rhs-col", "2", "--force"},
                    world.InFolder())
                .exit_code,
            0);

  // Without the state of the run, too.
  std::filesystem::copy(world.File("model"), world.File("copy"));

  const std::vector<std::vector<std::string>> commands = {
      {"train", "run.json", "--set", "checkpoint_path=copy", "--set", "num_epochs=9"},
      {"neighbors", "model", "--entity", "u0"},
      {"score", "model", "--lhs", "u0", "--rel", "knows"},
      {"eval", "model", "--edges", "edges"},
      {"export", "model", "--to", "tsv", "-o", "out"},
      {"train", "run.json", "--set", "checkpoint_path=other", "--set", "init_path=model"}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = RunWeft(command, world.InFolder());
    EXPECT_EQ(result.exit_code, 1) << command[0];
    EXPECT_THAT(result.err, HasSubstr("names or in another order")) << command[0];
  }
}

TEST(TrainTest, DamagedStateOfARunIsToldWithTheWayOut) {
  const TrainWorld world({.num_edges = 100});
  ASSERT_EQ(world.Train().exit_code, 0);
  ASSERT_TRUE(WriteFileAtomically(world.File("model/.weft/run.log"), "WRL1 and junk").ok());

  const ProgramResult result = world.Train({"--set", "num_epochs=4"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("run.log"), HasSubstr("without model/.weft the run goes")));

  std::filesystem::remove_all(world.File("model/.weft"));
  EXPECT_EQ(world.Train({"--set", "num_epochs=4"}).exit_code, 0);
  world.ExpectPassesAreComplete(4);
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

TEST(TrainTest, AnotherDimensionOrPartitionCountIsRefusedBeforeAnythingIsWritten) {
  const TrainWorld world({});
  ASSERT_EQ(world.Train().exit_code, 0);
  const std::string before = ReadFile(world.File("model/config.json")).value();

  const std::vector<std::pair<std::string, std::string>> changes = {
      {"dimension=20", "dimension: was 16, is 20"},
      {"entities.user.num_partitions=2", "entities.user.num_partitions is now 2, was 1"}};
  for (const auto& [change, message] : changes) {
    const ProgramResult result = world.Train({"--set", change, "--set", "num_epochs=9"});
    EXPECT_EQ(result.exit_code, 1) << change;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(ReadFile(world.File("model/config.json")).value(), before);
  }
}

TEST(TrainTest, ALearningRateThatOverflowsStopsTheRunAndKeepsTheLastVersion) {
  const TrainWorld world({.num_partitions = 2});
  ASSERT_EQ(world.Train({"--set", "num_epochs=1"}).exit_code, 0);

  const ProgramResult result = world.Train({"--set", "num_epochs=5", "--set", "lr=1e38"});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("bucket ("), HasSubstr("batch "), HasSubstr("knows")));
  const int version = std::stoi(world.CommittedVersion());
  for (int p = 0; p < 2; ++p) {
    const EmbeddingPartition table = world.Embeddings(p, version);
    for (const float x : table.embeddings.span()) ASSERT_TRUE(std::isfinite(x));
  }
  // With a sane rate it goes on.
  EXPECT_EQ(world.Train({"--set", "num_epochs=5"}).exit_code, 0);
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

TEST(TrainTest, AnIdOutOfRangeIsRefusedWithItsRow) {
  const TrainWorld world({});
  EdgeList edges;
  edges.lhs = {0, 100'000};
  edges.rhs = {0, 0};
  edges.rel = {0, 0};
  auto writer = EdgeBucketWriter::Create(EdgeBucketPath(world.File("edges"), {0, 0}), false);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Append(edges).ok());
  ASSERT_TRUE((*writer)->Finish().ok());

  const ProgramResult result = world.Train();

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, AllOf(HasSubstr("edges_0_0.h5"), HasSubstr("lhs[1] is 100000")));
  EXPECT_EQ(world.CommittedVersion(), "");
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

TEST(TrainTest, BadFlagsAndBadConfigurationsAreToldApartFromFailures) {
  const TrainWorld world({});
  EXPECT_EQ(world.Train({"--threads", "0"}).exit_code, 2);
  EXPECT_EQ(world.Train({"--set", "dimension=-1"}).exit_code, 2);
  EXPECT_EQ(world.Train({"--set", "dimensoin=4"}).exit_code, 2);
  EXPECT_EQ(RunWeft({"train", "nowhere.json"}, world.InFolder()).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(world.File("model")));
  // Sound, but its data is not there.
  EXPECT_EQ(world.Train({"--set", "entity_path=nowhere"}).exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(world.File("model")));
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
