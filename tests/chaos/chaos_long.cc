// weft_chaos_long: minutes of chaos, beside undisturbed runs of other seeds. See scripts/chaos.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/chaos/chaos_run.h"

namespace weft::testing {
namespace {

struct Flags {
  int kills = 100;
  uint64_t seed = 0;
  std::string store = "rocksdb";
  int undisturbed = 5;
  int epochs = 200;
};

TrainWorld::Options LongWorld(const Flags& flags) {
  TrainWorld::Options options;
  options.num_partitions = 6;
  options.num_edges = 120'000;
  options.num_entities = 2'000;
  options.config["num_epochs"] = flags.epochs;
  options.config["dimension"] = 32;
  options.config["relations"] = {
      {{"name", "knows"}, {"lhs", "user"}, {"rhs", "user"}, {"operator", "diagonal"}}};
  return options;
}

// The values' mean, and the standard deviation of one value.
std::pair<double, double> MeanAndDeviation(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / (n - 1))};
}

void Run(const Flags& flags) {
  const TrainWorld world(LongWorld(flags));
  ChaosRun::Options options;
  options.store = flags.store;
  options.within = absl::Minutes(60);
  options.seed = flags.seed;
  options.may_rewind = flags.store == "memory";
  std::vector<double> calm;
  for (int i = 0; i < flags.undisturbed; ++i) {
    ChaosRun::Options one = options;
    one.name = absl::StrCat("calm-", i);
    one.overrides = {absl::StrCat("seed=", 100 + i)};
    ChaosRun run(world, one);
    if (!run.ok()) return;
    run.Run();
    if (::testing::UnitTest::GetInstance()->Failed()) return;
    calm.push_back(run.Mrr());
    std::printf("undisturbed: %s mrr=%.5f\n", run.Summary().c_str(), calm.back());
    std::fflush(stdout);
  }
  options.kills = flags.kills;
  options.proxies = true;
  options.overrides = {"seed=99"};
  ChaosRun run(world, options);
  if (!run.ok()) return;
  run.Run();
  std::printf("%s\n", run.Summary().c_str());
  if (::testing::UnitTest::GetInstance()->Failed()) return;
  EXPECT_GE(run.kills(), flags.kills) << "the run was over sooner: more --epochs";
  const double mrr = run.Mrr();
  if (calm.size() < 2) return;
  const auto [mean, deviation] = MeanAndDeviation(calm);
  // Of the difference between one run and the mean of the others.
  const double error = deviation * std::sqrt(1 + 1 / static_cast<double>(calm.size()));
  std::printf("mrr=%.5f undisturbed=%.5f standard_error=%.5f runs=%zu distance=%.2f errors\n", mrr,
              mean, error, calm.size(), std::abs(mrr - mean) / error);
  EXPECT_LE(std::abs(mrr - mean), 2 * error);
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  Flags flags;
  CLI::App app("A long run of a cluster whose processes are killed, stopped and restarted.");
  app.add_option("--kills", flags.kills, "How many processes are killed")->capture_default_str();
  app.add_option("--seed", flags.seed, "Of what is done to whom (default: the clock's)");
  app.add_option("--store", flags.store, "Of the partition servers")
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  app.add_option("--undisturbed", flags.undisturbed, "Runs to compare with")->capture_default_str();
  app.add_option("--epochs", flags.epochs, "How long a run is")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (flags.seed == 0) flags.seed = ChaosSeed();
  Run(flags);
  const bool failed = ::testing::UnitTest::GetInstance()->Failed();
  std::printf("chaos: %s\n", failed ? "FAILED" : "passed");
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) { return weft::testing::Main(argc, argv); }
