#include "services/param_server/grpc_param_client.h"

#include <utility>

#include "services/common/status_macros.h"
#include "services/param_server/param_convert.h"

namespace weft {
namespace {

// What was damaged on its way is asked for again.
template <typename T>
absl::StatusOr<T> Repeatable(absl::StatusOr<T> answer) {
  if (absl::IsDataLoss(answer.status())) return absl::UnavailableError(answer.status().message());
  return answer;
}

}  // namespace

GrpcParamClient::GrpcParamClient(std::string address, std::shared_ptr<grpc::Channel> channel,
                                 const Options& options)
    : address_(std::move(address)),
      options_(options),
      stub_(v1::ParamService::NewStub(std::move(channel))) {}

template <typename Request>
void GrpcParamClient::SetTerm(Request* request) const {
  if (options_.fence == nullptr) return;
  const RunContext known = options_.fence->known();
  request->mutable_context()->set_term(known.term);
  request->mutable_context()->set_lock_server(known.lock_server);
}

absl::StatusOr<JoinPage> GrpcParamClient::Join(const JoinRequest& request) {
  v1::JoinRequest message = ToProto(request);
  SetTerm(&message);
  v1::JoinResponse response;
  const absl::Status status =
      UnaryCall({options_.timeout, &calls_}, [&](auto* context, auto* reactor) {
        stub_->async()->Join(context, &message, &response, reactor);
      });
  return Repeatable(status.ok() ? FromProto(response) : absl::StatusOr<JoinPage>(status));
}

absl::StatusOr<PushAnswer> GrpcParamClient::Push(const PushRequest& request) {
  v1::PushRequest message = ToProto(request);
  SetTerm(&message);
  v1::PushResponse response;
  const absl::Status status =
      UnaryCall({options_.timeout, &calls_}, [&](auto* context, auto* reactor) {
        stub_->async()->Push(context, &message, &response, reactor);
      });
  return Repeatable(status.ok() ? FromProto(response) : absl::StatusOr<PushAnswer>(status));
}

}  // namespace weft
