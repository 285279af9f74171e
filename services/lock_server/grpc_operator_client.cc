#include "services/lock_server/grpc_operator_client.h"

#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcOperatorClient>> GrpcOperatorClient::Create(Options options) {
  WEFT_ASSIGN_OR_RETURN(const auto channel,
                        MakeChannel(options.address, Role::kLockServer, options.security));
  return std::unique_ptr<GrpcOperatorClient>(
      new GrpcOperatorClient(std::move(options), v1::LockService::NewStub(channel)));
}

GrpcOperatorClient::GrpcOperatorClient(Options options, std::unique_ptr<v1::LockService::Stub> stub)
    : options_(std::move(options)), stub_(std::move(stub)) {}

template <typename Request, typename Response>
absl::Status GrpcOperatorClient::Call(Request* request, Response* response, absl::Duration wait,
                                      StartUnaryCall start) {
  // The run only: an operator speaks to whatever life of it there is.
  request->mutable_context()->set_run_id(fence_.known().run_id);
  const Peer peer = {RoleName(ServerRole::kLock), options_.address};
  WEFT_RETURN_IF_ERROR(UnaryCallWithRetry(peer, options_.retry, Idempotency::kIdempotent,
                                          {wait + kTimeout, &calls_}, start));
  return fence_.Check(FromProto(response->context()));
}

absl::StatusOr<v1::GetRunStateResponse> GrpcOperatorClient::GetRunState(bool include_buckets,
                                                                        uint64_t known_revision,
                                                                        absl::Duration wait) {
  v1::GetRunStateRequest request;
  request.set_include_buckets(include_buckets);
  request.set_known_revision(known_revision);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  v1::GetRunStateResponse response;
  WEFT_RETURN_IF_ERROR(Call(&request, &response, wait, [&](auto* context, auto* reactor) {
    stub_->async()->GetRunState(context, &request, &response, reactor);
  }));
  return response;
}

absl::StatusOr<v1::GetCheckpointResponse> GrpcOperatorClient::GetCheckpoint(int64_t version) {
  v1::GetCheckpointRequest request;
  request.set_version(version);
  v1::GetCheckpointResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
        stub_->async()->GetCheckpoint(context, &request, &response, reactor);
      }));
  return response;
}

absl::Status GrpcOperatorClient::Pin(const std::string& request_id, int64_t version,
                                     absl::Duration ttl) {
  v1::PinCheckpointRequest request;
  request.set_request_id(request_id);
  request.set_version(version);
  request.set_ttl_ms(absl::ToInt64Milliseconds(ttl));
  v1::PinCheckpointResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->PinCheckpoint(context, &request, &response, reactor);
  });
}

absl::Status GrpcOperatorClient::Unpin(const std::string& request_id) {
  v1::UnpinCheckpointRequest request;
  request.set_request_id(request_id);
  v1::UnpinCheckpointResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->UnpinCheckpoint(context, &request, &response, reactor);
  });
}

absl::Status GrpcOperatorClient::Preserve(int64_t version, bool preserve) {
  v1::PreserveCheckpointRequest request;
  request.set_version(version);
  request.set_preserve(preserve);
  v1::PreserveCheckpointResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->PreserveCheckpoint(context, &request, &response, reactor);
  });
}

absl::StatusOr<uint64_t> GrpcOperatorClient::Rollback(const std::string& request_id,
                                                      int64_t version) {
  v1::RollbackRequest request;
  request.set_request_id(request_id);
  request.set_version(version);
  v1::RollbackResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
        stub_->async()->Rollback(context, &request, &response, reactor);
      }));
  return response.context().generation();
}

absl::Status GrpcOperatorClient::Pause(bool pause) {
  v1::PauseRunRequest request;
  request.set_pause(pause);
  v1::PauseRunResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->PauseRun(context, &request, &response, reactor);
  });
}

absl::Status GrpcOperatorClient::ForgetStore(uint64_t store_id) {
  v1::ForgetStoreRequest request;
  request.set_store_id(store_id);
  v1::ForgetStoreResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->ForgetStore(context, &request, &response, reactor);
  });
}

absl::StatusOr<v1::BeginImportResponse> GrpcOperatorClient::BeginImport(
    v1::BeginImportRequest request) {
  v1::BeginImportResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
        stub_->async()->BeginImport(context, &request, &response, reactor);
      }));
  return response;
}

absl::Status GrpcOperatorClient::AddEdges(v1::AddEdgesRequest request) {
  v1::AddEdgesResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->AddEdges(context, &request, &response, reactor);
  });
}

absl::Status GrpcOperatorClient::CompleteImport(uint64_t token) {
  v1::CompleteImportRequest request;
  request.set_token(token);
  v1::CompleteImportResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->CompleteImport(context, &request, &response, reactor);
  });
}

absl::StatusOr<v1::BeginPushResponse> GrpcOperatorClient::BeginPush(const std::string& request_id) {
  v1::BeginPushRequest request;
  request.set_request_id(request_id);
  v1::BeginPushResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
        stub_->async()->BeginPush(context, &request, &response, reactor);
      }));
  return response;
}

absl::Status GrpcOperatorClient::AddPushed(v1::AddPushedRequest request) {
  v1::AddPushedResponse response;
  return Call(&request, &response, absl::ZeroDuration(), [&](auto* context, auto* reactor) {
    stub_->async()->AddPushed(context, &request, &response, reactor);
  });
}

absl::StatusOr<v1::CommitPushResponse> GrpcOperatorClient::CommitPush(v1::CommitPushRequest request,
                                                                      absl::Duration wait) {
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  v1::CommitPushResponse response;
  WEFT_RETURN_IF_ERROR(Call(&request, &response, wait, [&](auto* context, auto* reactor) {
    stub_->async()->CommitPush(context, &request, &response, reactor);
  }));
  return response;
}

std::string NewRequestId() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

}  // namespace weft
