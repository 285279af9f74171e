// ParamServerClient is one parameter server as a trainer calls it.
//
// Implementations: GrpcParamClient; tests call a RowBlockStore.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/param_server/param_exchange.h"

namespace weft {

class ParamServerClient {
 public:
  virtual ~ParamServerClient() = default;

  // One attempt each; may be repeated with the same request. Errors: those of RowBlockStore;
  // Unavailable and DeadlineExceeded when there was no answer; Cancelled.
  virtual absl::StatusOr<JoinPage> Join(const JoinRequest& request) = 0;
  virtual absl::StatusOr<PushAnswer> Push(const PushRequest& request) = 0;

  // Ends calls under way, and those to come, with Cancelled.
  virtual void Cancel() {}
  // host:port, for messages.
  virtual std::string address() const = 0;
};

}  // namespace weft
