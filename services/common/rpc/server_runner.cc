#include "services/common/rpc/server_runner.h"

#include <grpc/impl/codegen/grpc_types.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_builder.h>
#include <sys/resource.h>

#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/rpc/rpc_settings.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// Health of the whole server has the empty name.
constexpr char kAllServices[] = "";
constexpr char kLiveService[] = "live";

// Both are settings of the process, and not thread-safe.
void EnableHealthAndReflection() {
  static std::once_flag once;
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

// Each connection takes a descriptor. gRPC's listener stops for good when there is none left, and
// the soft limit of most systems, 1,024, is soon reached.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string BoundAddress(const std::string& listen, int port) {
  if (absl::StartsWith(listen, "unix:")) return listen;
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerRunner>> ServerRunner::Start(
    Options options, const std::vector<grpc::Service*>& services) {
  WEFT_ASSIGN_OR_RETURN(const auto credentials,
                        MakeServerCredentials(options.listen, options.security));
  EnableHealthAndReflection();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(options.listen, credentials, &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (options.metrics != nullptr) {
    builder.experimental().SetInterceptorCreators(CountServerCalls(options.metrics));
  }
  builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kStreamWindowBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  // A second server on a port in use is an error, not a partner.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(
      GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.handshake_timeout)));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(options.max_idle)));
  RaiseFileLimit();
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (port == 0 && !absl::StartsWith(options.listen, "unix:"))) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot listen on ", options.listen, ": it is in use, or not an address of this machine"));
  }
  server->GetHealthCheckService()->SetServingStatus(kAllServices, false);
  server->GetHealthCheckService()->SetServingStatus(kLiveService, true);
  return std::unique_ptr<ServerRunner>(
      new ServerRunner(std::move(options), std::move(server), port));
}

ServerRunner::ServerRunner(Options options, std::unique_ptr<grpc::Server> server, int port)
    : options_(std::move(options)),
      server_(std::move(server)),
      port_(port),
      address_(BoundAddress(options_.listen, port)) {}

ServerRunner::~ServerRunner() { Drain(); }

void ServerRunner::SetServing(bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(kAllServices, serving);
}

void ServerRunner::Drain() {
  if (std::exchange(drained_, true)) return;
  server_->GetHealthCheckService()->Shutdown();
  if (options_.on_drain != nullptr) options_.on_drain();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + options_.grace));
  server_->Wait();
}

}  // namespace weft
