// GrpcOperatorClient is the lock server as the command line calls it: the state of the run, its
// checkpoints, and what an operator may ask for. Answers are the messages of lock_service.proto.
//
// Every call is repeated until patience is over. Errors: those of the calls, with role and address.
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/rpc/credentials.h"
#include "services/common/rpc/unary_call.h"
#include "services/common/run_fence.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft {

class GrpcOperatorClient {
 public:
  struct Options {
    std::string address;  // host:port
    RetryOptions retry = {.patience = absl::Seconds(10)};
    SecurityOptions security;
  };

  static absl::StatusOr<std::unique_ptr<GrpcOperatorClient>> Create(Options options);

  // Waits up to `wait` for a state with another revision than `known_revision`.
  absl::StatusOr<v1::GetRunStateResponse> GetRunState(bool include_buckets,
                                                      uint64_t known_revision = 0,
                                                      absl::Duration wait = absl::ZeroDuration());
  absl::StatusOr<v1::GetCheckpointResponse> GetCheckpoint(int64_t version);
  absl::Status Pin(const std::string& request_id, int64_t version, absl::Duration ttl);
  absl::Status Unpin(const std::string& request_id);
  absl::Status Preserve(int64_t version, bool preserve);
  // Gives the new generation.
  absl::StatusOr<uint64_t> Rollback(const std::string& request_id, int64_t version);
  absl::Status Pause(bool pause);
  absl::Status ForgetStore(uint64_t store_id);
  // Edges that partition servers hold (lock_service.proto). The contexts of the requests are filled
  // in.
  absl::StatusOr<v1::BeginImportResponse> BeginImport(v1::BeginImportRequest request);
  absl::Status AddEdges(v1::AddEdgesRequest request);
  absl::Status CompleteImport(uint64_t token);
  // A checkpoint from outside; contexts are filled in. CommitPush waits up to `wait`.
  absl::StatusOr<v1::BeginPushResponse> BeginPush(const std::string& request_id);
  absl::Status AddPushed(v1::AddPushedRequest request);
  absl::StatusOr<v1::CommitPushResponse> CommitPush(v1::CommitPushRequest request,
                                                    absl::Duration wait);

  // Ends all calls with Cancelled.
  void Cancel() { calls_.Cancel(); }
  // What is known of the run: for those who call its stores.
  RunFence* fence() { return &fence_; }
  const std::string& address() const { return options_.address; }

 private:
  GrpcOperatorClient(Options options, std::unique_ptr<v1::LockService::Stub> stub);

  template <typename Request, typename Response>
  absl::Status Call(Request* request, Response* response, absl::Duration wait,
                    StartUnaryCall start);

  const Options options_;
  const std::unique_ptr<v1::LockService::Stub> stub_;
  RunFence fence_;
  CallGroup calls_;
};

// Random, for calls that are known by an id.
std::string NewRequestId();

}  // namespace weft
