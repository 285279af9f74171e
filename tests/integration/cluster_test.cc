// Clusters of real processes train a small graph, to the edge, whatever happens to them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/cluster_world.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::ClusterOf;
using ::weft::testing::ExpectLastPassIsExact;
using ::weft::testing::kEpochs;
using ::weft::testing::kPartitions;
using ::weft::testing::LocalCluster;
using ::weft::testing::NumParamServers;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;

class ClusterStoreTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ClusterStoreTest, TwoTrainersTrainToTheEdge) {
  const TrainWorld world(SmallWorld());
  LocalCluster cluster(ClusterOf(world, GetParam()));
  ASSERT_TRUE(cluster.ok());

  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  ExpectLastPassIsExact(&cluster, world, kEpochs);
}

INSTANTIATE_TEST_SUITE_P(Stores, ClusterStoreTest, ::testing::Values("rocksdb", "memory"));

TEST(ClusterTest, ATrainerThatIsKilledLosesItsBucketToOthersAndTheRunEndsExact) {
  const TrainWorld world(SmallWorld({{"commit_seconds", 0}}));
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  cluster.Await("trainer-0 in the middle of the run", [](const v1::GetRunStateResponse& state) {
    bool training = false;
    for (const v1::TrainerInfo& trainer : state.trainers()) {
      training |= trainer.name() == "trainer-0" && !trainer.buckets().empty();
    }
    return training && (state.position().epoch() > 0 || state.buckets_done() > 1);
  });

  cluster.processes().Find("trainer-0")->Signal(SIGKILL);
  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  ExpectLastPassIsExact(&cluster, world, kEpochs);
}

TEST(ClusterTest, ServersThatAreKilledComeBackAndNothingIsLost) {
  const TrainWorld world(SmallWorld({{"commit_seconds", 0}}));
  LocalCluster cluster(ClusterOf(world));
  ASSERT_TRUE(cluster.ok());
  int epoch = 0;
  std::vector<std::string> servers = {"lock-server", "partition-server-0"};
  if (NumParamServers() > 0) servers.push_back("param-server-0");
  for (const std::string& server : servers) {
    cluster.Await(absl::StrCat("epoch ", epoch), [epoch](const v1::GetRunStateResponse& state) {
      return state.phase() == v1::RUN_PHASE_DONE ||
             (state.position().epoch() >= epoch && state.buckets_done() > 1);
    });
    cluster.processes().Find(server)->Signal(SIGKILL);
    ++epoch;
  }

  const v1::GetRunStateResponse end = cluster.AwaitEnd();

  EXPECT_EQ(end.position().epoch(), kEpochs);
  EXPECT_EQ(end.context().generation(), 1u);  // durable stores: no rewind
  ExpectLastPassIsExact(&cluster, world, kEpochs);
}

TEST(ClusterUpTest, TrainsPullsTheLastVersionAndStopsEverything) {
  const TrainWorld world(SmallWorld());

  const ProgramResult up =
      RunProgram({WeftPath(), "cluster", "up", "run.json", "--threads", "1", "--param-servers",
                  absl::StrCat(NumParamServers()), "--json", "up.json"},
                 world.InFolder());

  ASSERT_EQ(up.exit_code, 0) << up.out << up.err;
  EXPECT_EQ(world.CommittedVersion(), absl::StrCat(kEpochs));
  EXPECT_EQ(world.Json("up.json")["checkpoint_version"], kEpochs);
  for (int p = 0; p < kPartitions; ++p) {
    const EmbeddingPartition table = world.Embeddings(p, kEpochs);
    double sum = 0;
    for (int64_t row = 0; row < table.count(); ++row) sum += table.embeddings.row(row)[0];
    EXPECT_TRUE(std::isfinite(sum));
    EXPECT_NE(sum, 0);
  }
  // What was trained is there: the edges are found again far better than by chance.
  const ProgramResult eval =
      RunProgram({WeftPath(), "eval", "run.json", "--edges", "edges", "--json", "eval.json"},
                 world.InFolder());
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  EXPECT_GT(world.Json("eval.json")["raw"]["mrr"].get<double>(), 0.05);
}

TEST(ClusterUpTest, StatusAndCheckpointListAnswerForNobodyWithRoleAndAddress) {
  const TrainWorld world(SmallWorld());
  const ProgramResult status = RunProgram({WeftPath(), "status", "127.0.0.1:1"}, world.InFolder());

  EXPECT_EQ(status.exit_code, 1);
  EXPECT_THAT(status.err, HasSubstr("lock server at 127.0.0.1:1"));
}

}  // namespace
}  // namespace weft
