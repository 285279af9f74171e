#include "services/param_server/param_service_impl.h"

#include "absl/strings/str_cat.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/rpc_metrics.h"
#include "services/param_server/param_convert.h"

namespace weft {

absl::Status ParamServiceImpl::Told(const absl::Status& status) {
  if (status.ok()) return status;
  const absl::Status failed = store_->failed();
  if (failed.ok()) return status;
  if (on_failure_ != nullptr) on_failure_();
  return absl::UnavailableError(
      absl::StrCat("this parameter server can write no more, and ends: ", failed.message()));
}

grpc::ServerUnaryReactor* ParamServiceImpl::Join(grpc::CallbackServerContext* context,
                                                 const v1::JoinRequest* request,
                                                 v1::JoinResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const PeerRole caller = CallerRole(*context);
  pool_->Submit([this, reactor, request, response, caller] {
    const absl::StatusOr<JoinPage> page = store_->Join(FromProto(*request));
    if (page.ok()) {
      *response = ToProto(*page);
      if (transfers_ != nullptr) {
        transfers_->AddSent(caller, static_cast<int64_t>(page->rows.Bytes()));
      }
    }
    *response->mutable_context() = ToProto(store_->context());
    reactor->Finish(ToGrpcStatus(Told(page.status())));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ParamServiceImpl::Push(grpc::CallbackServerContext* context,
                                                 const v1::PushRequest* request,
                                                 v1::PushResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const PeerRole caller = CallerRole(*context);
  pool_->Submit([this, reactor, request, response, caller] {
    const absl::StatusOr<PushRequest> push = FromProto(*request);
    if (!push.ok()) store_->RefusedMalformed();
    const absl::StatusOr<PushAnswer> answer =
        push.ok() ? store_->Push(*push) : absl::StatusOr<PushAnswer>(push.status());
    if (answer.ok()) {
      *response = ToProto(*answer);
      if (transfers_ != nullptr) {
        transfers_->AddReceived(caller, static_cast<int64_t>(push->rows.Bytes()));
        transfers_->AddSent(caller, static_cast<int64_t>(answer->rows.Bytes()));
      }
    }
    *response->mutable_context() = ToProto(store_->context());
    reactor->Finish(ToGrpcStatus(Told(answer.status())));
  });
  return reactor;
}

}  // namespace weft
