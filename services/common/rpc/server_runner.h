// ServerRunner is a gRPC server from its start to its drain: health, reflection, settings of the
// transport, and an orderly end.
//
// Health: not serving until SetServing(true), which a main says when it has recovered; not serving
// again as soon as it drains, so that nobody new is sent here. The service name "live" is served
// from the start until the drain: for those who ask only whether the process answers.
// Drain: health, then `on_drain` (answer the calls that wait), then no new calls, then the rest has
// `grace` to finish before it is cancelled.
//
// Thread-safety: SetServing may be called from any thread; the rest from the one that started it.
#pragma once

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/credentials.h"
#include "services/common/rpc/rpc_metrics.h"

namespace weft {

class ServerRunner {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // host:port; port 0: any that is free
    SecurityOptions security;
    absl::Duration grace = absl::Seconds(10);
    std::function<void()> on_drain;
    RpcMetrics* metrics = nullptr;  // counts the calls; null: nobody does
    // A peer that has not finished its handshake by then, and one without a call for so long, is
    // dropped. Ours connect anew when they want something.
    absl::Duration handshake_timeout = absl::Seconds(10);
    absl::Duration max_idle = absl::Minutes(10);
  };

  // `services` must outlive the runner.
  // Errors: FailedPrecondition when it cannot listen there (in use, not of this machine, or plain
  // text beyond it).
  static absl::StatusOr<std::unique_ptr<ServerRunner>> Start(
      Options options, const std::vector<grpc::Service*>& services);
  // Drains, if that has not been done.
  ~ServerRunner();

  // host:port, with the port that it has.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  void SetServing(bool serving);
  // Repeats do nothing.
  void Drain();

 private:
  ServerRunner(Options options, std::unique_ptr<grpc::Server> server, int port);

  const Options options_;
  const std::unique_ptr<grpc::Server> server_;
  const int port_;
  const std::string address_;
  bool drained_ = false;
};

}  // namespace weft
