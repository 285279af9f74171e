// What a user may do wrong around `weft train`, and what the machine may: told, and nothing lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
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
using testing::RunWeft;
using testing::TrainWorld;

// What is printed must not end up in a file that was given the number of a closed stream.
TEST(TrainTroublesTest, ClosedStandardStreamsGetNoDataFiles) {
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

// The last update has been in no score: that of one batch is the whole training.
TEST(TrainTroublesTest, AnUpdateThatOverflowsIsNoCheckpoint) {
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

TEST(TrainTroublesTest, ALearningRateThatOverflowsStopsTheRunAndKeepsTheLastVersion) {
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

// As many entities, but row 0 is another one now.
TEST(TrainTroublesTest, NamesOfAnotherImportAreRefused) {
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

TEST(TrainTroublesTest, EdgesOfAnotherImportAreNotEvaluated) {
  const TrainWorld world({.num_edges = 100});
  ASSERT_EQ(world.Train().exit_code, 0);
  ASSERT_TRUE(WriteFileAtomically(world.File("other.tsv"), "u5\tknows\tu1\n").ok());
  ASSERT_EQ(
      RunWeft({"import", "run.json", "other.tsv", "--lhs-col", "0", "--rel-col", "1", "--rhs-col",
               "2", "--set", "entity_path=other/entities", "--set", "edge_paths=other/edges"},
              world.InFolder())
          .exit_code,
      0);

  for (const std::vector<std::string>& edges :
       {std::vector<std::string>{"--edges", "other/edges"},
        std::vector<std::string>{"--edges", "edges", "--filter", "other/edges"}}) {
    std::vector<std::string> command = {"eval", "model"};
    command.insert(command.end(), edges.begin(), edges.end());
    const ProgramResult result = RunWeft(command, world.InFolder());
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("other/edges: belongs to another import"));
  }
}

TEST(TrainTroublesTest, DamagedStateOfARunIsToldWithTheWayOut) {
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

TEST(TrainTroublesTest, AnotherDimensionOrPartitionCountIsRefusedBeforeAnythingIsWritten) {
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

TEST(TrainTroublesTest, AnIdOutOfRangeIsRefusedWithItsRow) {
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

TEST(TrainTroublesTest, BadFlagsAndBadConfigurationsAreToldApartFromFailures) {
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

TEST(TrainTroublesTest, TwoThousandOperatorsNeedFewOpenFiles) {
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

}  // namespace
}  // namespace weft
