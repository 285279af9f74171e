#include "services/common/rpc/rpc_metrics.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/client_interceptor.h>
#include <grpcpp/support/interceptor.h>

#include <chrono>

#include "absl/strings/match.h"
#include "services/common/check.h"

namespace weft {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

constexpr char kRoleKey[] = "weft-role";

std::vector<double> Boundaries() {
  return {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};
}

absl::string_view CodeName(grpc::StatusCode code) {
  constexpr absl::string_view kNames[] = {"OK",
                                          "CANCELLED",
                                          "UNKNOWN",
                                          "INVALID_ARGUMENT",
                                          "DEADLINE_EXCEEDED",
                                          "NOT_FOUND",
                                          "ALREADY_EXISTS",
                                          "PERMISSION_DENIED",
                                          "RESOURCE_EXHAUSTED",
                                          "FAILED_PRECONDITION",
                                          "ABORTED",
                                          "OUT_OF_RANGE",
                                          "UNIMPLEMENTED",
                                          "INTERNAL",
                                          "UNAVAILABLE",
                                          "DATA_LOSS",
                                          "UNAUTHENTICATED"};
  const auto at = static_cast<size_t>(code);
  return at < std::size(kNames) ? kNames[at] : "UNKNOWN";
}

// Counts one call, from its beginning to its status.
class CallTimer {
 public:
  CallTimer(RpcMetrics* metrics, const char* method) : metrics_(metrics), method_(method) {}

  void End(grpc::StatusCode code) {
    metrics_->Record(method_, code, absl::FromChrono(std::chrono::steady_clock::now() - begin_));
  }

 private:
  RpcMetrics* const metrics_;
  const std::string method_;  // gRPC's own may be gone by then
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class ServerInterceptor : public grpc::experimental::Interceptor {
 public:
  ServerInterceptor(RpcMetrics* metrics, grpc::experimental::ServerRpcInfo* info)
      : context_(info->server_context()), timer_(metrics, info->method()) {}
  // gRPC answers so, too, when a caller ends a call before its request is here, and tells which of
  // the two it was only when the call is over.
  ~ServerInterceptor() override {
    if (!unimplemented_) return;
    timer_.End(cancelled_ ? grpc::StatusCode::CANCELLED : grpc::StatusCode::UNIMPLEMENTED);
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::StatusCode code = methods->GetSendStatus().error_code();
      unimplemented_ = code == grpc::StatusCode::UNIMPLEMENTED;
      if (!unimplemented_) timer_.End(code);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_CLOSE)) {
      cancelled_ = context_->IsCancelled();
    }
    methods->Proceed();
  }

 private:
  const grpc::ServerContextBase* const context_;
  CallTimer timer_;
  // Each is set by the thread of its own event; both are over when this is destroyed.
  bool unimplemented_ = false;
  bool cancelled_ = false;
};

class ServerFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit ServerFactory(RpcMetrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    if (absl::StartsWith(info->method(), "/grpc.")) return nullptr;
    return new ServerInterceptor(metrics_, info);
  }

 private:
  RpcMetrics* const metrics_;
};

class ClientInterceptor : public grpc::experimental::Interceptor {
 public:
  ClientInterceptor(RpcMetrics* metrics, const std::string& role, const char* method)
      : role_(role), timer_(metrics, method) {}

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace(kRoleKey, role_);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_STATUS)) {
      timer_.End(methods->GetRecvStatus()->error_code());
    }
    methods->Proceed();
  }

 private:
  const std::string& role_;
  CallTimer timer_;
};

class ClientFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit ClientFactory(ServerRole role) : role_(PeerRoleName(PeerRoleOf(role))) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo* info) override {
    return new ClientInterceptor(&metrics_, role_, info->method());
  }

  const RpcMetrics& metrics() const { return metrics_; }

 private:
  const std::string role_;
  RpcMetrics metrics_{"weft_rpc_client_duration_seconds",
                      "Calls made, each attempt: from its beginning to its answer."};
};

}  // namespace

RpcMetrics::RpcMetrics(std::string name, std::string help)
    : name_(std::move(name)), help_(std::move(help)) {}

void RpcMetrics::Record(absl::string_view method, grpc::StatusCode code, absl::Duration took) {
  const std::string name(method.substr(method.rfind('/') + 1));
  MutexLock lock(&mu_);
  durations_.try_emplace({name, code}, Boundaries())
      .first->second.Observe(absl::ToDoubleSeconds(took));
}

void RpcMetrics::Write(MetricsPage* page) const {
  MutexLock lock(&mu_);
  for (const auto& [call, durations] : durations_) {
    page->AddHistogram(name_, help_, {{"method", call.first}, {"code", CodeName(call.second)}},
                       durations);
  }
}

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
CountServerCalls(RpcMetrics* metrics) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<ServerFactory>(metrics));
  return factories;
}

const RpcMetrics& CountClientCalls(ServerRole role) {
  static ClientFactory* factory = nullptr;
  WEFT_CHECK(factory == nullptr);
  // gRPC's threads may use it until the process has ended.
  factory = new ClientFactory(role);
  grpc::experimental::RegisterGlobalClientInterceptorFactory(factory);
  return factory->metrics();
}

PeerRole CallerRole(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kRoleKey);
  if (found == context.client_metadata().end()) return PeerRole::kOther;
  return PeerRoleFromName({found->second.data(), found->second.size()});
}

}  // namespace weft
