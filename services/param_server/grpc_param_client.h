// GrpcParamClient calls one parameter server.
//
// Thread-safety: as ParamServerClient.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "services/common/rpc/unary_call.h"
#include "services/common/run_fence.h"
#include "services/param_server/param_server_client.h"
#include "weft/v1/param_service.grpc.pb.h"

namespace weft {

class GrpcParamClient : public ParamServerClient {
 public:
  struct Options {
    absl::Duration timeout = absl::Seconds(10);  // of one attempt
    // The trainer's: calls carry the newest term it knows, which may be newer than the session.
    // May be null; must outlive the client.
    const RunFence* fence = nullptr;
  };

  GrpcParamClient(std::string address, std::shared_ptr<grpc::Channel> channel,
                  const Options& options);

  absl::StatusOr<JoinPage> Join(const JoinRequest& request) override;
  absl::StatusOr<PushAnswer> Push(const PushRequest& request) override;
  void Cancel() override { calls_.Cancel(); }
  std::string address() const override { return address_; }

 private:
  template <typename Request>
  void SetTerm(Request* request) const;

  const std::string address_;
  const Options options_;
  CallGroup calls_;
  const std::unique_ptr<v1::ParamService::Stub> stub_;
};

}  // namespace weft
