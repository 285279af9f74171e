// What every process of a cluster has for those who watch it: its metrics, whether it is ready, and
// an HTTP server for both, if it is asked for.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/cluster_types.h"
#include "services/common/logging.h"
#include "services/common/metrics.h"
#include "services/common/metrics_server.h"
#include "services/common/process_metrics.h"
#include "services/common/readiness.h"
#include "services/common/rpc/credentials.h"
#include "services/common/rpc/rpc_metrics.h"

namespace weft {

struct MonitoringFlags {
  std::string listen;        // empty: no HTTP server
  std::string address_file;  // written with host:port
  LogFormat log_format = LogFormat::kText;
};

void AddMonitoringFlags(MonitoringFlags* flags, CLI::App* app);

class Monitoring {
 public:
  // Once a process, after ShutdownSignals and before the first call. `data_dir` may be empty.
  // From then on gRPC's own log is part of this process's.
  // Errors: FailedPrecondition when it cannot listen there; those of writing the file.
  static absl::StatusOr<std::unique_ptr<Monitoring>> Start(const MonitoringFlags& flags,
                                                           const std::string& program,
                                                           ServerRole role,
                                                           const std::string& data_dir,
                                                           const SecurityOptions& security);

  MetricsRegistry* registry() { return &registry_; }
  Readiness* readiness() { return &readiness_; }
  // Of this process's server.
  RpcMetrics* server_calls() { return &server_calls_; }

 private:
  Monitoring(const std::string& program, ServerRole role, const std::string& data_dir,
             const SecurityOptions& security);

  const ProcessMetrics process_;
  const RpcMetrics& client_calls_;
  RpcMetrics server_calls_;
  Readiness readiness_;
  MetricsRegistry registry_;
  std::unique_ptr<MetricsRegistry::Registration> registration_;
  std::unique_ptr<MetricsServer> server_;  // last: it asks all of the above
};

}  // namespace weft
