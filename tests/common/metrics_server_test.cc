#include "services/common/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "services/common/process_metrics.h"
#include "tests/testing/http_get.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::HttpAnswer;
using testing::HttpGet;
using ::testing::StartsWith;
using testing::StatusIs;

struct Server {
  Server() {
    auto started = MetricsServer::Start("127.0.0.1:0", &registry, &readiness);
    EXPECT_TRUE(started.ok()) << started.status();
    if (started.ok()) server = *std::move(started);
  }
  HttpAnswer Get(const std::string& path, const std::string& method = "GET") const {
    return HttpGet(server->address(), path, method);
  }

  MetricsRegistry registry;
  Readiness readiness{"waits for the lock server at host:1"};
  std::unique_ptr<MetricsServer> server;
};

TEST(MetricsServerTest, WritesPrometheusText) {
  Server server;
  Histogram seconds({0.1, 1});
  for (const double value : {0.05, 0.5, 5.0}) seconds.Observe(value);
  const auto source = server.registry.Add([&](MetricsPage* page) {
    page->AddCounter("weft_x_total", "Some \"x\".", {{"kind", "a"}}, 1e15);
    page->AddCounter("weft_x_total", "Some \"x\".", {{"kind", "b"}}, 2);
    page->AddGauge("weft_y", "One y.", {}, std::numeric_limits<double>::quiet_NaN());
    page->AddHistogram("weft_z_seconds", "Some z.", {}, seconds);
  });

  const HttpAnswer answer = server.Get("/metrics");

  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.content_type, StartsWith("text/plain; version=0.0.4"));
  EXPECT_THAT(answer.body, HasSubstr("# HELP weft_x_total Some \"x\".\n"
                                     "# TYPE weft_x_total counter\n"
                                     "weft_x_total{kind=\"a\"} 1000000000000000\n"
                                     "weft_x_total{kind=\"b\"} 2\n"));
  EXPECT_THAT(answer.body, HasSubstr("weft_y Nan\n"));
  EXPECT_THAT(answer.body, HasSubstr("weft_z_seconds_count 3\n"
                                     "weft_z_seconds_sum 5.55"));
  EXPECT_THAT(answer.body, HasSubstr("weft_z_seconds_bucket{le=\"1\"} 2\n"
                                     "weft_z_seconds_bucket{le=\"+Inf\"} 3\n"));
}

TEST(MetricsServerTest, IsAliveBeforeItIsReadyAndSaysWhatItWaitsFor) {
  Server server;

  EXPECT_EQ(server.Get("/healthz").code, 200);
  const HttpAnswer waiting = server.Get("/readyz");
  EXPECT_EQ(waiting.code, 503);
  EXPECT_EQ(waiting.body, "waits for the lock server at host:1\n");
  EXPECT_THAT(server.Get("/metrics").body, HasSubstr("\nweft_process_ready 0\n"));

  server.readiness.SetReady();

  EXPECT_EQ(server.Get("/readyz").code, 200);
  EXPECT_THAT(server.Get("/metrics").body, HasSubstr("\nweft_process_ready 1\n"));
}

TEST(MetricsServerTest, AnswersNothingElse) {
  Server server;

  EXPECT_EQ(server.Get("/").code, 404);
  EXPECT_EQ(server.Get("/metrics/more").code, 404);
  EXPECT_EQ(server.Get("/healthz", "POST").code, 404);
}

TEST(MetricsServerTest, CountsItsScrapes) {
  Server server;
  EXPECT_THAT(server.Get("/metrics").body, HasSubstr("\nweft_metrics_scrapes_total 0\n"));

  const std::string second = server.Get("/metrics").body;

  EXPECT_THAT(second, HasSubstr("\nweft_metrics_scrapes_total 1\n"));
  EXPECT_THAT(second, ::testing::Not(HasSubstr("weft_metrics_scrape_cpu_seconds_total 0\n")));
}

TEST(MetricsServerTest, AnAddressInUseIsRefusedByName) {
  Server server;

  EXPECT_THAT(MetricsServer::Start(server.server->address(), &server.registry, &server.readiness),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(server.server->address())));
  EXPECT_THAT(MetricsServer::Start("nonsense", &server.registry, &server.readiness),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nonsense")));
}

TEST(ProcessMetricsTest, SaysWhatThisProcessUses) {
  const testing::TempDir folder;
  MetricsRegistry registry;
  Readiness readiness;
  const ProcessMetrics process("weft-test", folder.path());
  const auto source = registry.Add([&](MetricsPage* page) { process.Write(page); });
  const auto server = *MetricsServer::Start("127.0.0.1:0", &registry, &readiness);

  const std::string text = HttpGet(server->address(), "/metrics").body;

  EXPECT_THAT(text, HasSubstr("weft_build_info{program=\"weft-test\",version=\""));
  for (const char* name :
       {"process_cpu_seconds_total", "process_threads", "process_virtual_memory_bytes",
        "process_resident_memory_bytes", "process_start_time_seconds", "process_open_fds",
        "process_max_fds", "weft_process_memory_available_bytes", "weft_process_time_seconds",
        "weft_disk_size_bytes", "weft_disk_free_bytes"}) {
    EXPECT_THAT(text, ::testing::ContainsRegex(std::string("\n") + name + " [0-9.e+-]*[1-9]"))
        << name;
  }
}

}  // namespace
}  // namespace weft
