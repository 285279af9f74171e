// MetricsServer answers HTTP: /metrics, /healthz (200: the process is alive) and /readyz (200: it
// does its work; else 503 and in one line why not).
//
// Plain HTTP, without secrets and without effect, so any address may be listened on.
// Thread-safety: Start and the end on one thread. Threads: a few of its own.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/metrics.h"
#include "services/common/readiness.h"

namespace weft {

class MetricsServer {
 public:
  // `listen`: host:port; port 0: any that is free. Both must outlive the server.
  // Errors: FailedPrecondition when it cannot listen there.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& listen,
                                                              MetricsRegistry* registry,
                                                              const Readiness* readiness);
  // Answers what is under way, then ends.
  ~MetricsServer();

  // host:port, with the port that it has.
  const std::string& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
