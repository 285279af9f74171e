// How a session is kept alive, and what the answers to its heartbeats say.
#include <algorithm>
#include <string>
#include <utility>

#include "services/common/logging.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"
#include "services/lock_server/grpc_lock_client.h"
#include "services/lock_server/lock_client_convert.h"

namespace weft {
namespace {

constexpr absl::Duration kMaxHeartbeatInterval = absl::Seconds(10);
// How often one looks whether the run's servers are there.
constexpr absl::Duration kPrepareInterval = absl::Milliseconds(200);

}  // namespace

absl::Status GrpcLockClient::AwaitPrepared() {
  const Peer peer = {RoleName(ServerRole::kLock), options_.address};
  uint64_t known_servers = 0;  // all of them, at once
  while (true) {
    WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
    v1::RunPhase phase = v1::RUN_PHASE_UNSPECIFIED;
    const absl::Status status = RetryCall(
        peer, options_.retry, Idempotency::kIdempotent, acquiring_.flag(), [&]() -> absl::Status {
          WEFT_ASSIGN_OR_RETURN(phase, Heartbeat(state, &known_servers, options_.timeout));
          return absl::OkStatus();
        });
    if (absl::IsAborted(status)) End(state, status);
    WEFT_RETURN_IF_ERROR(status);
    if (phase == v1::RUN_PHASE_FAILED) return absl::FailedPreconditionError("the run has failed");
    if (phase != v1::RUN_PHASE_PREPARING && phase != v1::RUN_PHASE_REWINDING) return status;
    if (!acquiring_.flag()->WaitFor(kPrepareInterval)) return absl::CancelledError("stopped");
  }
}

void GrpcLockClient::StartHeartbeats(const SessionPtr& state) {
  heartbeats_end_ = std::make_unique<CancelFlag>();
  heartbeats_ = std::thread([this, state] { HeartbeatForEver(state); });
}

void GrpcLockClient::StopHeartbeats() {
  if (heartbeats_end_ != nullptr) heartbeats_end_->Cancel();
  if (heartbeats_.joinable()) heartbeats_.join();
}

void GrpcLockClient::HeartbeatForEver(const SessionPtr& state) {
  // Two may be lost within a lease.
  const absl::Duration interval = std::min(state->session.lease / 4, kMaxHeartbeatInterval);
  uint64_t known_servers = places_->servers().revision;
  bool reached = true;
  while (heartbeats_end_->WaitFor(interval) && !state->ended) {
    const absl::Status status = Heartbeat(state, &known_servers, interval).status();
    if (absl::IsAborted(status) || absl::IsFailedPrecondition(status)) {
      LogWarning("session has ended",
                 {{"incarnation", state->session.incarnation}, {"reason", status.message()}});
      End(state, absl::AbortedError(status.message()));
      return;
    }
    if (status.ok() != reached) {
      reached = status.ok();
      if (reached) {
        LogInfo("lock server is there again", {{"address", options_.address}});
      } else {
        LogWarning("lock server does not answer",
                   {{"address", options_.address}, {"cause", status.message()}});
      }
    }
  }
}

absl::StatusOr<v1::RunPhase> GrpcLockClient::Heartbeat(const SessionPtr& state,
                                                       uint64_t* known_servers,
                                                       absl::Duration timeout) {
  v1::HeartbeatRequest request;
  *request.mutable_context() = ToProto(state->session.context);
  request.set_incarnation(state->session.incarnation);
  request.set_progress(progress_.load(std::memory_order_relaxed));
  request.set_known_servers(*known_servers);
  {
    MutexLock lock(&state->mu);
    for (const Token token : state->tokens) request.add_tokens(token);
  }
  v1::HeartbeatResponse response;
  WEFT_RETURN_IF_ERROR(UnaryCall({timeout, &calls_}, [&](auto* context, auto* reactor) {
    stub_->async()->Heartbeat(context, &request, &response, reactor);
  }));
  WEFT_RETURN_IF_ERROR(TakeContext(response.context()));
  if (response.has_servers()) {
    WEFT_ASSIGN_OR_RETURN(ServerList servers, ServerListFromProto(response.servers()));
    *known_servers = servers.revision;
    places_->SetServers(std::move(servers));
  }
  if (!response.waits_for().empty())
    Tell(LogEvent("the run is not ready", {{"cause", response.waits_for()}}));
  for (const Token token : response.void_tokens()) {
    LogWarning("grant is void", {{"token", token}});
    places_->DropGrant(token);
    MutexLock lock(&state->mu);
    state->tokens.erase(token);
  }
  return response.phase();
}

}  // namespace weft
