// RpcMetrics counts calls with their duration, by method and status code: those that a server has
// answered, or those that this process makes. Every outcome counts. Health checks and reflection
// do not.
//
// It sits between gRPC and everybody else, as an interceptor, so that no service and no client has
// to think of it.
#pragma once

#include <grpcpp/support/server_interceptor.h>
#include <grpcpp/support/status.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/common/cluster_types.h"
#include "services/common/metrics.h"
#include "services/common/mutex.h"
#include "services/common/transfer_metrics.h"

namespace grpc {
class CallbackServerContext;
}  // namespace grpc

namespace weft {

class RpcMetrics {
 public:
  // `name`, `help`: of the metric.
  RpcMetrics(std::string name, std::string help);

  // `method`: "/weft.v1.LockService/Register". Thread-safety: any thread, here and below.
  void Record(absl::string_view method, grpc::StatusCode code, absl::Duration took)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Write(MetricsPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const std::string name_;
  const std::string help_;
  mutable Mutex mu_;
  // By method, without its service, and code. A call of a server is one of its methods, so this
  // stays small.
  std::map<std::pair<std::string, grpc::StatusCode>, Histogram> durations_ ABSL_GUARDED_BY(mu_);
};

// For a server's builder. `metrics` must outlive the server.
std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
CountServerCalls(RpcMetrics* metrics);

// From now on all calls of this process are counted and say what it is. Once a process, before its
// first call; the counts live as long as the process.
const RpcMetrics& CountClientCalls(ServerRole role);

// What the caller says that it is.
PeerRole CallerRole(const grpc::CallbackServerContext& context);

}  // namespace weft
