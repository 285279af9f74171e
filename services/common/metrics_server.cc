#include "services/common/metrics_server.h"

#include <civetweb.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/metrics_prometheus.h"

namespace weft {
namespace {

// A scraper, and a probe beside it.
constexpr const char* kThreads = "2";
// Of a client that reads or writes nothing.
constexpr const char* kTimeoutMs = "10000";

double ThreadCpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int Answer(mg_connection* connection, int code, const char* reason, const char* type,
           absl::string_view body) {
  mg_printf(
      connection,
      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
      code, reason, type, body.size());
  mg_write(connection, body.data(), body.size());
  return code;
}

// Whether the path is the handler's own, and not one below it.
bool IsGetOf(mg_connection* connection, absl::string_view path) {
  const mg_request_info* const request = mg_get_request_info(connection);
  return absl::string_view(request->request_method) == "GET" &&
         absl::string_view(request->local_uri) == path;
}

// mg_stop, which looks at what it is to stop only every two seconds, or when somebody comes.
void StopAtOnce(mg_context* context, const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const int port = std::stoi(address.substr(colon + 1));
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    mg_stop(context);
    stopped = true;
  });
  while (!stopped) {
    char error[128];
    mg_connection* const visit = mg_connect_client(host.c_str(), port, 0, error, sizeof error);
    if (visit != nullptr) mg_close_connection(visit);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

int NotThere(mg_connection* connection) {
  return Answer(connection, 404, "Not Found", "text/plain; charset=utf-8",
                "GET /metrics, /healthz or /readyz\n");
}

}  // namespace

struct MetricsServer::Impl {
  MetricsRegistry* registry = nullptr;
  const Readiness* readiness = nullptr;
  mg_context* context = nullptr;
  std::string address;
  Counter scrapes;
  Counter cpu_seconds;
  std::unique_ptr<MetricsRegistry::Registration> registration;

  void Write(MetricsPage* page) const {
    page->AddCounter("weft_metrics_scrapes_total", "Answers to /metrics.", {}, scrapes.value());
    page->AddCounter("weft_metrics_scrape_cpu_seconds_total",
                     "Processor time that answers to /metrics took.", {}, cpu_seconds.value());
    page->AddGauge("weft_process_ready", "1 when the process does its work, else 0.", {},
                   readiness->waits_for().empty() ? 1 : 0);
  }

  static int Metrics(mg_connection* connection, void* self) {
    if (!IsGetOf(connection, "/metrics")) return NotThere(connection);
    auto* const impl = static_cast<Impl*>(self);
    const double begin = ThreadCpuSeconds();
    const int code = Answer(connection, 200, "OK", "text/plain; version=0.0.4; charset=utf-8",
                            PrometheusText(impl->registry));
    impl->cpu_seconds.Add(ThreadCpuSeconds() - begin);
    impl->scrapes.Increment();
    return code;
  }

  static int Health(mg_connection* connection, void*) {
    if (!IsGetOf(connection, "/healthz")) return NotThere(connection);
    return Answer(connection, 200, "OK", "text/plain; charset=utf-8", "alive\n");
  }

  static int Ready(mg_connection* connection, void* self) {
    if (!IsGetOf(connection, "/readyz")) return NotThere(connection);
    const std::string waits_for = static_cast<const Impl*>(self)->readiness->waits_for();
    if (waits_for.empty()) {
      return Answer(connection, 200, "OK", "text/plain; charset=utf-8", "ready\n");
    }
    return Answer(connection, 503, "Service Unavailable", "text/plain; charset=utf-8",
                  absl::StrCat(waits_for, "\n"));
  }

  static int Other(mg_connection* connection, void*) { return NotThere(connection); }
};

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() { StopAtOnce(impl_->context, impl_->address); }

const std::string& MetricsServer::address() const { return impl_->address; }

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& listen,
                                                                    MetricsRegistry* registry,
                                                                    const Readiness* readiness) {
  auto impl = std::make_unique<Impl>();
  impl->registry = registry;
  impl->readiness = readiness;
  mg_init_library(0);
  const char* options[] = {"listening_ports",    listen.c_str(), "num_threads", kThreads,
                           "request_timeout_ms", kTimeoutMs,     nullptr};
  const mg_callbacks callbacks = {};
  impl->context = mg_start(&callbacks, impl.get(), options);
  mg_server_port port = {};
  if (impl->context == nullptr || mg_get_server_ports(impl->context, 1, &port) < 1) {
    if (impl->context != nullptr) mg_stop(impl->context);
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot listen on ", listen, " for metrics: it is in use, or not an address here"));
  }
  impl->address = absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port.port);
  impl->registration = registry->Add([impl = impl.get()](MetricsPage* page) { impl->Write(page); });
  mg_set_request_handler(impl->context, "/metrics", Impl::Metrics, impl.get());
  mg_set_request_handler(impl->context, "/healthz", Impl::Health, impl.get());
  mg_set_request_handler(impl->context, "/readyz", Impl::Ready, impl.get());
  mg_set_request_handler(impl->context, "/", Impl::Other, impl.get());
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

}  // namespace weft
