#include "services/lock_server/lock_service_impl.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/tls_identity.h"
#include "services/common/status_macros.h"
#include "services/lock_server/lock_service_convert.h"

namespace weft {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

LockServiceImpl::LockServiceImpl(Options options, RunCoordinator* run, RunLoop* loop,
                                 const Clock& clock)
    : options_(std::move(options)),
      run_(run),
      loop_(loop),
      clock_(clock),
      run_info_(MakeRunInfo(run->state())) {}

template <typename Request, typename Response>
ServerUnaryReactor* LockServiceImpl::CallAndWait(
    CallbackServerContext* context, const Request* request, Response* response, int64_t wait_ms,
    std::function<std::optional<absl::Status>(bool last)> call) {
  ServerUnaryReactor* reactor = context->DefaultReactor();
  const absl::Duration wait =
      std::clamp(absl::Milliseconds(wait_ms), absl::ZeroDuration(), options_.max_wait);
  const auto attempt = [=, this](bool last) -> std::optional<RunLoop::Answer> {
    std::optional<absl::Status> status;
    // Who has gone is given nothing.
    if (context->IsCancelled()) {
      status = absl::CancelledError("the caller has gone");
    } else if (absl::Status fits = run_->Check(FromProto(request->context())); !fits.ok()) {
      status = fits;
    } else {
      status = call(last);
    }
    if (!status.has_value()) return std::nullopt;
    *response->mutable_context() = ToProto(run_->context());
    return [this, reactor, status = *status] {
      reactor->Finish(ToGrpcStatus(status));
      if (run_->superseded() && options_.on_superseded != nullptr) options_.on_superseded();
      if (options_.on_edges_arrived != nullptr && run_->edges_arrived()) {
        options_.on_edges_arrived();
      }
    };
  };
  loop_->Submit(attempt, clock_.SteadyNow() + absl::ToChronoNanoseconds(wait));
  return reactor;
}

template <typename Request, typename Response>
ServerUnaryReactor* LockServiceImpl::Call(CallbackServerContext* context, const Request* request,
                                          Response* response, std::function<absl::Status()> call) {
  return CallAndWait(context, request, response, 0,
                     [call = std::move(call)](bool) { return std::optional(call()); });
}

ServerUnaryReactor* LockServiceImpl::Register(CallbackServerContext* context,
                                              const v1::RegisterRequest* request,
                                              v1::RegisterResponse* response) {
  return CallAndWait(context, request, response, request->wait_ms(),
                     [=, this](bool last) -> std::optional<absl::Status> {
                       const auto name = run_->Register(RegistrationFromProto(*request));
                       if (absl::IsUnavailable(name.status()) && request->wait_ms() > 0) {
                         if (!last) return std::nullopt;
                         response->set_waits_for(std::string(name.status().message()));
                         return absl::OkStatus();
                       }
                       if (!name.ok()) return name.status();
                       response->set_name(*name);
                       *response->mutable_run() = run_info_;
                       *response->mutable_servers() = ServerListToProto(run_->servers());
                       response->set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
                       return absl::OkStatus();
                     });
}

ServerUnaryReactor* LockServiceImpl::Heartbeat(CallbackServerContext* context,
                                               const v1::HeartbeatRequest* request,
                                               v1::HeartbeatResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    const std::vector<Token> tokens(request->tokens().begin(), request->tokens().end());
    WEFT_ASSIGN_OR_RETURN(const std::vector<Token> ended,
                          run_->Heartbeat(request->incarnation(), tokens, request->progress()));
    response->mutable_void_tokens()->Add(ended.begin(), ended.end());
    response->set_phase(PhaseToProto(run_->phase()));
    response->set_waits_for(run_->waits_for());
    const ServerList servers = run_->servers();
    if (servers.revision != request->known_servers()) {
      *response->mutable_servers() = ServerListToProto(servers);
    }
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::AcquireBucket(CallbackServerContext* context,
                                                   const v1::AcquireBucketRequest* request,
                                                   v1::AcquireBucketResponse* response) {
  return CallAndWait(context, request, response, request->wait_ms(),
                     [=, this](bool last) -> std::optional<absl::Status> {
                       const auto result =
                           run_->Acquire(request->incarnation(), AcquireRequestFromProto(*request));
                       if (!result.ok()) return result.status();
                       if (!result->grant.has_value() && !result->run_done && !last)
                         return std::nullopt;
                       if (result->grant.has_value())
                         *response->mutable_grant() = GrantToProto(*result->grant);
                       response->set_remaining(result->remaining);
                       response->set_run_done(result->run_done);
                       return absl::OkStatus();
                     });
}

ServerUnaryReactor* LockServiceImpl::ReleaseBucket(CallbackServerContext* context,
                                                   const v1::ReleaseBucketRequest* request,
                                                   v1::ReleaseBucketResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const ReleaseResult result,
                          run_->Release(request->incarnation(), ReleaseRequestFromProto(*request)));
    response->set_pass_done(result.pass_done);
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::AbandonBucket(CallbackServerContext* context,
                                                   const v1::AbandonBucketRequest* request,
                                                   v1::AbandonBucketResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->Abandon(request->incarnation(), request->token()); });
}

ServerUnaryReactor* LockServiceImpl::Leave(CallbackServerContext* context,
                                           const v1::LeaveRequest* request,
                                           v1::LeaveResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->Leave(request->incarnation()); });
}

ServerUnaryReactor* LockServiceImpl::ReportUnreadable(CallbackServerContext* context,
                                                      const v1::ReportUnreadableRequest* request,
                                                      v1::ReportUnreadableResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::vector<Place> places,
                          run_->ReportUnreadable(request->incarnation(), request->token(),
                                                 {FromProto(request->version()), request->shard()},
                                                 FromProto(request->place())));
    for (const Place& place : places) *response->add_places() = ToProto(place);
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::ReportFailure(CallbackServerContext* context,
                                                   const v1::ReportFailureRequest* request,
                                                   v1::ReportFailureResponse* response) {
  return Call(context, request, response, [=, this] {
    return run_->ReportFailure(request->incarnation(), request->token(),
                               {FromProto(request->bucket()), request->reason()});
  });
}

namespace {

// Servers of both roles make the call; its message says as which. Without TLS nobody has a role.
absl::Status CheckRole(RoleSet caller, const ServerInfo& server) {
  const Role role =
      server.role == ServerRole::kPartition ? Role::kPartitionServer : Role::kParamServer;
  if (caller.empty() || caller.Has(role)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("a certificate of ", ToString(caller), " may not register a ", RoleWord(role)));
}

}  // namespace

ServerUnaryReactor* LockServiceImpl::StoreSync(CallbackServerContext* context,
                                               const v1::StoreSyncRequest* request,
                                               v1::StoreSyncResponse* response) {
  // What is reported is taken once; later looks ask for orders only.
  auto report = std::make_shared<absl::StatusOr<StoreReport>>(StoreReportFromProto(*request));
  if (report->ok()) {
    const absl::Status fits = CheckRole(CallerRoles(*context), (*report)->server);
    if (!fits.ok()) *report = fits;
  }
  return CallAndWait(
      context, request, response, request->wait_ms(),
      [=, this](bool last) -> std::optional<absl::Status> {
        if (!report->ok()) return report->status();
        StoreReport& said = **report;
        const auto told = run_->Sync(said);
        if (!told.ok()) return told.status();
        said.results.clear();
        said.persisted.clear();
        if (told->revision == request->known_revision() && !told->keep_list.has_value() && !last) {
          return std::nullopt;
        }
        InstructionsToProto(*told, response);
        if (request->known_revision() == 0) *response->mutable_run() = run_info_;
        return absl::OkStatus();
      });
}

ServerUnaryReactor* LockServiceImpl::BeginImport(CallbackServerContext* context,
                                                 const v1::BeginImportRequest* request,
                                                 v1::BeginImportResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const RunCoordinator::ImportTarget target,
                          run_->BeginImport(ImportedEdgesFromProto(*request),
                                            {request->schema().begin(), request->schema().end()}));
    response->set_token(target.token);
    response->set_complete(target.complete);
    *response->mutable_servers() = ServerListToProto(run_->servers());
    response->set_replicas(static_cast<uint32_t>(target.replicas));
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::AddEdges(CallbackServerContext* context,
                                              const v1::AddEdgesRequest* request,
                                              v1::AddEdgesResponse* response) {
  return Call(context, request, response, [=, this] {
    std::vector<VersionInfo> buckets;
    for (const v1::VersionInfo& bucket : request->buckets()) buckets.push_back(FromProto(bucket));
    return run_->AddEdges(request->token(), buckets);
  });
}

ServerUnaryReactor* LockServiceImpl::CompleteImport(CallbackServerContext* context,
                                                    const v1::CompleteImportRequest* request,
                                                    v1::CompleteImportResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->CompleteImport(request->token()); });
}

ServerUnaryReactor* LockServiceImpl::BeginPush(CallbackServerContext* context,
                                               const v1::BeginPushRequest* request,
                                               v1::BeginPushResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const RunCoordinator::PushTarget target,
                          run_->BeginPush(request->request_id()));
    response->set_token(target.token);
    response->set_committed(target.committed);
    *response->mutable_servers() = ServerListToProto(run_->servers());
    response->set_replicas(static_cast<uint32_t>(target.replicas));
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::AddPushed(CallbackServerContext* context,
                                               const v1::AddPushedRequest* request,
                                               v1::AddPushedResponse* response) {
  return Call(context, request, response, [=, this] {
    std::vector<VersionInfo> versions;
    for (const v1::VersionInfo& info : request->versions()) versions.push_back(FromProto(info));
    return run_->AddPushed(request->token(), versions);
  });
}

ServerUnaryReactor* LockServiceImpl::CommitPush(CallbackServerContext* context,
                                                const v1::CommitPushRequest* request,
                                                v1::CommitPushResponse* response) {
  return CallAndWait(context, request, response, request->wait_ms(),
                     [=, this](bool last) -> std::optional<absl::Status> {
                       const auto committed = run_->CommitPush(PushedFromProto(*request));
                       if (!committed.ok()) return committed.status();
                       if (!*committed && !last) return std::nullopt;
                       response->set_committed(*committed);
                       return absl::OkStatus();
                     });
}

ServerUnaryReactor* LockServiceImpl::GetRunState(CallbackServerContext* context,
                                                 const v1::GetRunStateRequest* request,
                                                 v1::GetRunStateResponse* response) {
  return CallAndWait(context, request, response, request->wait_ms(),
                     [=, this](bool last) -> std::optional<absl::Status> {
                       const uint64_t revision = run_->view_revision();
                       if (revision == request->known_revision() && !last) return std::nullopt;
                       ViewToProto(run_->View(request->include_buckets()), response);
                       response->set_revision(revision);
                       if (request->known_revision() == 0) *response->mutable_run() = run_info_;
                       return absl::OkStatus();
                     });
}

ServerUnaryReactor* LockServiceImpl::GetCheckpoint(CallbackServerContext* context,
                                                   const v1::GetCheckpointRequest* request,
                                                   v1::GetCheckpointResponse* response) {
  return Call(context, request, response, [=, this]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const CheckpointView view, run_->Checkpoint(request->version()));
    CheckpointToProto(view, response);
    *response->mutable_servers() = ServerListToProto(run_->servers());
    *response->mutable_run() = run_info_;
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::PinCheckpoint(CallbackServerContext* context,
                                                   const v1::PinCheckpointRequest* request,
                                                   v1::PinCheckpointResponse* response) {
  return Call(context, request, response, [=, this] {
    return run_->Pin(request->request_id(), request->version(),
                     std::chrono::milliseconds(request->ttl_ms()));
  });
}

ServerUnaryReactor* LockServiceImpl::UnpinCheckpoint(CallbackServerContext* context,
                                                     const v1::UnpinCheckpointRequest* request,
                                                     v1::UnpinCheckpointResponse* response) {
  return Call(context, request, response, [=, this] {
    run_->Unpin(request->request_id());
    return absl::OkStatus();
  });
}

ServerUnaryReactor* LockServiceImpl::PreserveCheckpoint(
    CallbackServerContext* context, const v1::PreserveCheckpointRequest* request,
    v1::PreserveCheckpointResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->Preserve(request->version(), request->preserve()); });
}

ServerUnaryReactor* LockServiceImpl::Rollback(CallbackServerContext* context,
                                              const v1::RollbackRequest* request,
                                              v1::RollbackResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->Rollback(request->request_id(), request->version()); });
}

ServerUnaryReactor* LockServiceImpl::PauseRun(CallbackServerContext* context,
                                              const v1::PauseRunRequest* request,
                                              v1::PauseRunResponse* response) {
  return Call(context, request, response, [=, this] { return run_->Pause(request->pause()); });
}

ServerUnaryReactor* LockServiceImpl::ForgetStore(CallbackServerContext* context,
                                                 const v1::ForgetStoreRequest* request,
                                                 v1::ForgetStoreResponse* response) {
  return Call(context, request, response,
              [=, this] { return run_->ForgetStore(request->store_id()); });
}

ServerUnaryReactor* LockServiceImpl::ReportEvaluation(CallbackServerContext* context,
                                                      const v1::ReportEvaluationRequest* request,
                                                      v1::ReportEvaluationResponse* response) {
  return Call(context, request, response, [=, this] {
    return run_->ReportEvaluation(request->version(), request->metric(), request->value());
  });
}

}  // namespace weft
