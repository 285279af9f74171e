// Clusters of real processes that are disturbed at random train a small graph to the edge. A run of
// some seconds for each kind of fault; scripts/chaos does the same for minutes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "services/common/file_util.h"
#include "tests/chaos/chaos_run.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kEpochs = 40;
constexpr int kPartitions = 6;
constexpr int kBuckets = kPartitions * kPartitions;

// An operator with parameters, so that parameter servers matter; more partitions than two trainers
// hold in memory, so that partition servers do.
TrainWorld::Options SmallWorld(int epochs = kEpochs) {
  TrainWorld::Options options;
  options.num_partitions = kPartitions;
  options.num_edges = 60'000;
  options.config["num_epochs"] = epochs;
  options.config["dimension"] = 32;
  options.config["relations"] = {
      {{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}}};
  return options;
}

ChaosRun::Options CalmRun() {
  ChaosRun::Options options;
  options.seed = ChaosSeed();
  options.lease = absl::Seconds(1);
  return options;
}

// In the middle of a pass that is not the first.
bool MiddleOfAPass(const v1::GetRunStateResponse& state) {
  return state.position().epoch() >= 2 && state.buckets_done() > kBuckets / 3 &&
         state.buckets_done() < kBuckets * 2 / 3;
}

class ChaosTest : public ::testing::Test {
 protected:
  ~ChaosTest() override { std::fflush(stdout); }
  static void Report(const ChaosRun& run) { std::printf("%s\n", run.Summary().c_str()); }
};

TEST_F(ChaosTest, WithProcessesOfAllRolesDisturbedEveryPassIsExactAndAsGoodAsUndisturbed) {
  const TrainWorld world(SmallWorld());
  ChaosRun::Options options = CalmRun();
  options.name = "calm";
  double undisturbed = 0;
  {
    ChaosRun calm(world, options);
    ASSERT_TRUE(calm.ok());
    calm.Run();
    undisturbed = calm.Mrr();
  }
  options.name = "chaos";
  options.kills = 5;
  options.proxies = true;
  ChaosRun run(world, options);
  ASSERT_TRUE(run.ok());

  run.Run();

  Report(run);
  if (HasFailure()) return;
  const double mrr = run.Mrr();
  std::printf("mrr=%.4f undisturbed=%.4f\n", mrr, undisturbed);
  // Two runs of the same differ by some hundredths; scripts/chaos has the numbers.
  EXPECT_NEAR(mrr, undisturbed, 0.1 * undisturbed);
}

TEST_F(ChaosTest, MemoryStoresThatAreKilledTakeTheRunBackToWhatIsDurable) {
  const TrainWorld world(SmallWorld());
  ChaosRun::Options options = CalmRun();
  options.store = "memory";
  options.kills = 4;
  options.may_rewind = true;
  ChaosRun run(world, options);
  ASSERT_TRUE(run.ok());
  run.Await("the middle of a pass", MiddleOfAPass);
  // All that is not durable: what is current now is lost.
  run.Kill("partition-server-0");
  run.Kill("partition-server-1");
  run.Await("the rewind", [&](const auto&) { return run.generation() > 1; });
  EXPECT_GT(run.generation(), 1u);

  run.Run();

  Report(run);
}

// The newest files of a partition server's store, whose blobs are: what is being stored, and what
// was committed last.
std::vector<std::string> NewestBlobs(const std::string& store, size_t count) {
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> files;
  for (const auto& entry : std::filesystem::directory_iterator(store + "/blobs/db")) {
    if (entry.path().extension() != ".sst") continue;
    files.emplace_back(entry.last_write_time(), entry.path().string());
  }
  std::ranges::sort(files, std::greater<>());
  std::vector<std::string> newest;
  for (const auto& [time, path] : files) {
    if (newest.size() < count) newest.push_back(path);
  }
  return newest;
}

TEST_F(ChaosTest, BlobsThatAreCutShortTakeTheRunBackToAWholeVersion) {
  TrainWorld::Options small = SmallWorld(10);
  small.config["checkpoint_preservation_interval"] = 1;  // all versions stay
  const TrainWorld world(small);
  ChaosRun::Options options = CalmRun();
  options.partition_servers = 1;
  options.may_rewind = true;
  ChaosRun run(world, options);
  ASSERT_TRUE(run.ok());
  // When little of the pass is stored, the newest blobs are those of the last version, too, and
  // some of the one before: a third one is whole.
  run.Await("the middle of a pass after three versions", [](const auto& state) {
    return state.position().epoch() >= 3 && MiddleOfAPass(state);
  });
  const std::string server = "partition-server-0";
  // Who has it in memory does not read it.
  for (const std::string& name : {std::string("trainer-0"), std::string("trainer-1"), server}) {
    run.Kill(name);
  }
  while (run.cluster().processes().Find(server)->Running()) absl::SleepFor(absl::Milliseconds(1));
  // Two grants of two trainers each may be under way, with two partitions: the others are current.
  const std::vector<std::string> blobs = NewestBlobs(run.File("cluster/" + server), 10);
  ASSERT_EQ(blobs.size(), 10u);
  for (const std::string& blob : blobs) {
    std::filesystem::resize_file(blob, std::filesystem::file_size(blob) / 2);
  }

  run.Await("the rewind", [&](const auto&) { return run.generation() > 1; });
  run.Finish();

  EXPECT_GE(run.generation(), 2u);
  EXPECT_THAT(ReadFile(run.File("cluster/logs/lock-server.log")).value_or(""),
              HasSubstr("REWIND: version="));
  Report(run);
}

// A small disk of its own for a folder, while it lives.
class SmallDisk {
 public:
  SmallDisk(const std::string& folder, const char* size) : folder_(folder) {
    EXPECT_TRUE(MakeDirectories(folder).ok());
    const std::string options = std::string("size=") + size;
    mounted_ = mount("weft", folder.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

  void Fill() {
    std::ofstream file(Filler(), std::ios::binary);
    const std::string block(4096, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void MakeRoom() { std::filesystem::remove(Filler()); }

 private:
  std::string Filler() const { return folder_ + "/filler"; }

  const std::string folder_;
  bool mounted_ = false;
};

TEST_F(ChaosTest, AFullDiskHoldsTheRunUpUntilThereIsRoom) {
  const TrainWorld world(SmallWorld(10));
  ChaosRun::Options options = CalmRun();
  options.partition_servers = 1;
  options.may_restart = true;  // a server that could not write ends
  SmallDisk disk(world.File("chaos/cluster/partition-server-0"), "160m");
  if (!disk.mounted()) GTEST_SKIP() << "only root may mount a small disk";
  {
    ChaosRun run(world, options);
    ASSERT_TRUE(run.ok());
    run.Await("the middle of a pass", MiddleOfAPass);

    disk.Fill();
    const absl::Time full = absl::Now();
    int64_t edges = 0;
    run.Await("that nothing is committed any more", [&](const v1::GetRunStateResponse& state) {
      const bool soon = absl::Now() < full + absl::Seconds(1);
      if (soon) edges = state.position().pass_id() * world.num_edges() + state.edges_done();
      return absl::Now() > full + absl::Seconds(3);
    });
    const v1::GetRunStateResponse held = run.Await("the state", [](const auto&) { return true; });
    EXPECT_EQ(held.position().pass_id() * world.num_edges() + held.edges_done(), edges);
    EXPECT_LT(held.position().epoch(), 10);
    disk.MakeRoom();
    run.Finish();

    Report(run);
  }
}

TEST_F(ChaosTest, AThirdTrainerAndTwoThatAreKilledChangeOnlyTheSpeed) {
  const TrainWorld world(SmallWorld(20));
  ChaosRun run(world, CalmRun());
  ASSERT_TRUE(run.ok());
  run.Await("the middle of a pass", MiddleOfAPass);
  ASSERT_THAT(run.cluster().processes().AddTrainer(), IsOk());
  run.Await("the third one's first grant", [](const v1::GetRunStateResponse& state) {
    return std::ranges::any_of(state.trainers(), [](const v1::TrainerInfo& trainer) {
      return trainer.name() == "trainer-2" && !trainer.buckets().empty();
    });
  });

  run.Kill("trainer-0");
  run.Kill("trainer-1");
  run.Finish();

  Report(run);
}

}  // namespace
}  // namespace weft::testing
