// Runs many new seeds each time, every seed that ever failed, and shows that rules which are not
// kept are noticed. `simulation --seed N` shows what happens in one run.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/simulation/cluster.h"

namespace weft::simulation {
namespace {

// New seeds for this long; WEFT_SIMULATION_SECONDS says otherwise.
constexpr double kSeconds = 8;

class Figures {
 public:
  void Add(uint64_t seed, const RunResult& run) {
    ++seeds_;
    kills_ += run.kills;
    passes_ += run.passes;
    edges_ += run.edges;
    rewinds_ += run.rewinds;
    nothing_left_ += run.nothing_left ? 1 : 0;
    EXPECT_EQ(run.failure, "") << "seed " << seed << ": add it to failed_seeds.txt; to see it: "
                               << "simulation --seed " << seed;
  }
  ~Figures() {
    std::printf("kills=%lld passes=%lld edges=%lld rewinds=%lld nothing_left=%lld seeds=%lld\n",
                static_cast<long long>(kills_), static_cast<long long>(passes_),
                static_cast<long long>(edges_), static_cast<long long>(rewinds_),
                static_cast<long long>(nothing_left_), static_cast<long long>(seeds_));
  }

 private:
  int64_t seeds_ = 0;
  int64_t kills_ = 0;
  int64_t passes_ = 0;
  int64_t edges_ = 0;
  int64_t rewinds_ = 0;
  int64_t nothing_left_ = 0;
};

TEST(SimulationTest, EveryPassOfNewSeedsIsExact) {
  const char* const wanted = std::getenv("WEFT_SIMULATION_SECONDS");
  const std::chrono::duration<double> budget(wanted == nullptr ? kSeconds : std::atof(wanted));
  const auto begin = std::chrono::steady_clock::now();
  const auto first = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                               std::chrono::system_clock::now().time_since_epoch())
                                               .count());
  std::printf("first seed: %llu\n", static_cast<unsigned long long>(first));
  std::fflush(stdout);
  Figures figures;
  for (uint64_t seed = first; std::chrono::steady_clock::now() - begin < budget; ++seed) {
    figures.Add(seed, SimulateRun(seed));
    if (HasFailure()) return;
  }
}

TEST(SimulationTest, SeedsThatOnceFailedFailNoMore) {
  const char* const source = std::getenv("WEFT_SOURCE_DIR");
  ASSERT_NE(source, nullptr);
  std::ifstream file(std::string(source) + "/tests/simulation/failed_seeds.txt");
  ASSERT_TRUE(file.is_open());
  Figures figures;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    const uint64_t seed = std::stoull(line);
    figures.Add(seed, SimulateRun(seed));
  }
}

TEST(SimulationTest, ASeedIsARun) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(SimulateRun(seed).fingerprint, SimulateRun(seed).fingerprint) << "seed " << seed;
  }
}

class WeakenedRuleTest : public testing::TestWithParam<Weakened> {};

TEST_P(WeakenedRuleTest, IsCaught) {
  constexpr uint64_t kSeeds = 1000;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const RunResult run = SimulateRun(seed, GetParam());
    if (run.failure.empty()) continue;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), run.failure.c_str());
    return;
  }
  FAIL() << "not noticed within " << kSeeds << " seeds";
}

INSTANTIATE_TEST_SUITE_P(
    All, WeakenedRuleTest,
    testing::Values(Weakened::kNamesTrainedCopies, Weakened::kTrainsWhatIsStored,
                    Weakened::kBlobsAnsweredUnsynced, Weakened::kSweepsEverything,
                    Weakened::kLockAnswersUnsynced, Weakened::kReleasesUnflushed));

}  // namespace
}  // namespace weft::simulation
