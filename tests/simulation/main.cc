// Runs the simulation over many seeds, or replays one.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "tests/simulation/cluster.h"

namespace weft::simulation {
namespace {

int Main(int argc, char** argv) {
  uint64_t first = 1;
  uint64_t seeds = 1000;
  uint64_t one = 0;
  int rule = 0;
  bool verbose = false;
  CLI::App app("Simulates whole runs of a cluster, each as its seed decides");
  app.add_option("--first-seed", first)->capture_default_str();
  app.add_option("--seeds", seeds, "how many")->capture_default_str();
  app.add_option("--seed", one, "this one alone, and what happens in it");
  app.add_option("--weakened", rule, "the number of a rule not to keep (cluster.h)");
  app.add_flag("--verbose", verbose, "say what happens");
  CLI11_PARSE(app, argc, argv);
  if (one != 0) {
    first = one;
    seeds = 1;
    verbose = true;
  }
  const auto begin = std::chrono::steady_clock::now();
  RunResult all;
  uint64_t failed = 0;
  uint64_t nothing_left = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const RunResult run = SimulateRun(seed, static_cast<Weakened>(rule), verbose);
    if (!run.failure.empty()) {
      ++failed;
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), run.failure.c_str());
      std::fflush(stdout);
    }
    if (run.nothing_left) ++nothing_left;
    all.kills += run.kills;
    all.passes += run.passes;
    all.edges += run.edges;
    all.trained += run.trained;
    all.sessions += run.sessions;
    all.rewinds += run.rewinds;
    all.seconds += run.seconds;
    all.fingerprint ^= run.fingerprint;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf(
      "seeds=%llu failed=%llu nothing_left=%llu kills=%lld passes=%lld edges=%lld trained=%lld "
      "sessions=%lld "
      "rewinds=%lld simulated_hours=%.1f seconds=%.1f fingerprint=%016llx\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(failed),
      static_cast<unsigned long long>(nothing_left), static_cast<long long>(all.kills),
      static_cast<long long>(all.passes), static_cast<long long>(all.edges),
      static_cast<long long>(all.trained), static_cast<long long>(all.sessions),
      static_cast<long long>(all.rewinds), all.seconds / 3600, took.count(),
      static_cast<unsigned long long>(all.fingerprint));
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weft::simulation

int main(int argc, char** argv) { return weft::simulation::Main(argc, argv); }
