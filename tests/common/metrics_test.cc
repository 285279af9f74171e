#include "services/common/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "services/common/transfer_metrics.h"
#include "tests/testing/recorded_metrics.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::RecordedMetrics;

TEST(CounterTest, NothingIsLostWhenManyAddAtOnce) {
  Counter counter;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counter] {
      for (int n = 0; n < 10000; ++n) counter.Add(2);
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(counter.value(), 80000);
}

TEST(HistogramTest, ABoundaryBelongsToTheValuesBelowIt) {
  Histogram histogram({1, 2});

  for (const double value : {0.5, 1.0, 1.5, 2.0, 9.0}) histogram.Observe(value);

  EXPECT_THAT(histogram.counts(), ElementsAre(2, 2, 1));
  EXPECT_EQ(histogram.sum(), 14);
}

TEST(MetricsRegistryTest, AsksTheSourcesThatAreThere) {
  MetricsRegistry registry;
  const auto first = registry.Add([](MetricsPage* page) { page->AddGauge("a", "", {}, 1); });
  auto second = registry.Add([](MetricsPage* page) {
    page->AddCounter("b", "", {{"kind", "x"}}, 2);
  });
  RecordedMetrics both;
  registry.Scrape(&both);

  second = nullptr;
  RecordedMetrics one;
  registry.Scrape(&one);

  EXPECT_EQ(both.values(), (RecordedMetrics::Values{{"a", 1}, {"b{kind=x}", 2}}));
  EXPECT_EQ(one.values(), (RecordedMetrics::Values{{"a", 1}}));
}

TEST(TransferMetricsTest, CountsBytesByRoleAndRatesByDirection) {
  TransferMetrics metrics;
  metrics.AddReceived(PeerRole::kTrainer, 100);
  metrics.AddSent(PeerRoleFromName("partition"), 7);
  metrics.AddSent(PeerRoleFromName("nonsense"), 9);
  metrics.Finished(TransferMetrics::Direction::kSent, 1000, absl::Seconds(2));

  RecordedMetrics page;
  metrics.Write(&page);

  EXPECT_EQ(page.Value("weft_transfer_received_bytes_total{role=trainer}"), 100);
  EXPECT_EQ(page.Value("weft_transfer_sent_bytes_total{role=partition}"), 7);
  EXPECT_EQ(page.Value("weft_transfer_sent_bytes_total{role=other}"), 9);
  EXPECT_EQ(page.Value("weft_transfer_rate_bytes_per_second_sum{direction=sent}"), 500);
  EXPECT_EQ(page.Value("weft_transfer_rate_bytes_per_second_count{direction=received}"), 0);
}

}  // namespace
}  // namespace weft
