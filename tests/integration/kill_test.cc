// Kills the built `weft train` at random instants, resumes it, and checks that nothing is lost and
// nothing is trained twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "tests/integration/train_world.h"
#include "tests/testing/test_seed.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::ProgramResult;
using testing::RunningProgram;
using testing::RunWeft;
using testing::TrainWorld;

constexpr int kKills = 6;

// Kills the training kKills times, each after a random part of `span`, then lets it end.
void KillAndResume(const TrainWorld& world, std::chrono::milliseconds span, RandomStream* random) {
  for (int kill = 0; kill < kKills; ++kill) {
    RunningProgram program(world.TrainCommand(), world.InFolder());
    const auto after =
        std::chrono::microseconds(random->Below(static_cast<uint32_t>(span.count()) * 1000));
    const auto deadline = std::chrono::steady_clock::now() + after;
    while (program.running() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    program.Signal(SIGKILL);
    const ProgramResult result = program.Wait();
    // Killed, or it had ended well before.
    ASSERT_TRUE(result.exit_code == 128 + SIGKILL || result.exit_code == 0)
        << result.exit_code << ": " << result.err;
  }
  const ProgramResult rest = world.Train();
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
}

void ExpectSaneResult(const TrainWorld& world, int epochs) {
  EXPECT_EQ(world.CommittedVersion(), std::to_string(epochs));
  world.ExpectPassesAreComplete(epochs);
  const ProgramResult eval = RunWeft(
      {"eval", "run.json", "--edges", "edges", "--candidates", "all", "--json", "eval.json"},
      world.InFolder());
  ASSERT_EQ(eval.exit_code, 0) << eval.err;
  // Of 1,000 candidates, at random 0.0075; trained, an order of magnitude more.
  EXPECT_GT(world.Json("eval.json")["raw"]["mrr"], 0.05);
}

std::chrono::milliseconds TimeOfOneRun(const TrainWorld& world) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(world.Train({"--set", "checkpoint_path=timing"}).exit_code, 0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               start);
}

class KillTest : public ::testing::TestWithParam<int> {};

TEST_P(KillTest, EveryPassIsTrainedToTheEdgeWhateverTheInstant) {
  const uint64_t seed = testing::TestSeed(1);
  SCOPED_TRACE(absl::StrCat("WEFT_TEST_SEED=", seed));
  const int partitions = GetParam();
  const int epochs = 12;
  const TrainWorld world({.num_partitions = partitions, .config = {{"num_epochs", epochs}}});
  RandomStream random(seed, RandomUse::kTest, static_cast<uint64_t>(partitions));

  ASSERT_NO_FATAL_FAILURE(KillAndResume(world, TimeOfOneRun(world) / 2, &random));

  ExpectSaneResult(world, epochs);
}

INSTANTIATE_TEST_SUITE_P(Partitions, KillTest, ::testing::Values(1, 4));

TEST(KillTest, SharedParametersSurviveInTheMiddleOfAPass) {
  // Relation operators, global embeddings and held-out edges, over two edge chunks.
  const TrainWorld world(
      {.num_partitions = 4,
       .config = {
           {"num_epochs", 6},
           {"num_edge_chunks", 1},
           {"eval_fraction", 0.1},
           {"global_emb", true},
           {"dynamic_relations", true},
           {"relations",
            {{{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}}}}}});
  RandomStream random(testing::TestSeed(1), RandomUse::kTest, 77);

  ASSERT_NO_FATAL_FAILURE(KillAndResume(world, TimeOfOneRun(world) / 2, &random));

  ExpectSaneResult(world, 6);
}

}  // namespace
}  // namespace weft
