// ClusterClients is what a trainer of a cluster works with: its session at the lock server, and the
// three clients of the training loop within it.
//
// Thread-safety: Connect and Configure by one thread, before training; then as the clients.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/metrics.h"
#include "services/common/retry.h"
#include "services/common/rpc/credentials.h"
#include "services/common/run_config.h"
#include "services/lock_server/grpc_lock_client.h"
#include "services/param_server/param_client.h"
#include "services/partition_server/partition_client.h"
#include "services/trainer/edge_source.h"

namespace weft {

class ClusterClients {
 public:
  struct Options {
    std::string lock_server;  // host:port
    std::string name;         // of this trainer
    RetryOptions retry;
    SecurityOptions security;
    int streams = 4;  // of partitions, at once
  };

  // Begins a session; waits for the lock server as long as the retry options say.
  // Errors: those of GrpcLockClient::EnsureSession.
  static absl::StatusOr<std::unique_ptr<ClusterClients>> Connect(const Options& options);
  virtual ~ClusterClients() = default;

  // What the lock server said of the run.
  virtual const GrpcLockClient::Session& session() const = 0;
  // Before the clients of partitions and parameters are used.
  virtual absl::Status Configure(const RunConfig& config) = 0;

  virtual GrpcLockClient& lock() = 0;
  virtual PartitionClient& partitions() = 0;
  virtual ParamClient& params() = 0;
  // The edges that partition servers hold; null: they lie in folders.
  virtual EdgeSource* edges() = 0;

  // What the clients have counted. After Configure; thread-safety: any thread.
  virtual void WriteMetrics(MetricsPage* page) const = 0;

  // Ends everything that waits; errors are Cancelled then.
  virtual void Cancel() = 0;
};

}  // namespace weft
