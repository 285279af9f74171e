// What a scrape of a lock server costs: a run of so many partitions on each side and 1,000
// sessions, as Prometheus' text. A quarter of the partitions are in training. Up to 64 x 64 the
// page has every bucket.
#include <benchmark/benchmark.h>

#include <string>

#include "services/common/check.h"
#include "services/common/metrics_prometheus.h"
#include "services/lock_server/run_metrics.h"
#include "tests/lock_server/cluster_fixture.h"

namespace weft {
namespace {

constexpr int64_t kTrainers = 1000;

void Scrape(benchmark::State& state) {
  const int64_t partitions = state.range(0);
  testing::ClusterRun run(testing::MakeClusterPlan(static_cast<int>(partitions)));
  WEFT_CHECK(run.Report(testing::PartitionServer(11, 1)).ok());
  for (int64_t i = 1; i <= kTrainers; ++i) {
    const auto trainer = static_cast<SessionId>(i);
    run.Register(trainer);
    if (i == 1 || i <= partitions / 8) run.Acquire(trainer, 1).IgnoreError();
  }
  MetricsRegistry registry;
  const auto source =
      registry.Add([&](MetricsPage* page) { WriteRunMetrics(run.coordinator->metrics(), page); });
  size_t bytes = 0;
  for (auto _ : state) {
    bytes = PrometheusText(&registry).size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(Scrape)->Arg(16)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft
