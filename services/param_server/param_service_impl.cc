#include "services/param_server/param_service_impl.h"

#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/param_server/param_convert.h"

namespace weft {

grpc::ServerUnaryReactor* ParamServiceImpl::Join(grpc::CallbackServerContext* context,
                                                 const v1::JoinRequest* request,
                                                 v1::JoinResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool_->Submit([this, reactor, request, response] {
    const absl::StatusOr<JoinPage> page = store_->Join(FromProto(*request));
    if (page.ok()) *response = ToProto(*page);
    *response->mutable_context() = ToProto(store_->context());
    reactor->Finish(ToGrpcStatus(page.status()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ParamServiceImpl::Push(grpc::CallbackServerContext* context,
                                                 const v1::PushRequest* request,
                                                 v1::PushResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool_->Submit([this, reactor, request, response] {
    const absl::StatusOr<PushRequest> push = FromProto(*request);
    const absl::StatusOr<PushAnswer> answer =
        push.ok() ? store_->Push(*push) : absl::StatusOr<PushAnswer>(push.status());
    if (answer.ok()) *response = ToProto(*answer);
    *response->mutable_context() = ToProto(store_->context());
    reactor->Finish(ToGrpcStatus(answer.status()));
  });
  return reactor;
}

}  // namespace weft
