// GrpcStoreSyncClient is StoreSyncClient over gRPC.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"
#include "services/common/rpc/credentials.h"
#include "services/common/rpc/unary_call.h"
#include "services/common/store_sync_client.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft {

class GrpcStoreSyncClient : public StoreSyncClient {
 public:
  // `address`: of the lock server, host:port. Errors: those of MakeChannel.
  static absl::StatusOr<std::unique_ptr<GrpcStoreSyncClient>> Connect(
      const std::string& address, const SecurityOptions& security);

  absl::StatusOr<Answer> Sync(const RunContext& context, const StoreReport& report,
                              uint64_t known_revision, absl::Duration wait) override;
  void Interrupt() override;

 private:
  explicit GrpcStoreSyncClient(std::unique_ptr<v1::LockService::Stub> stub)
      : stub_(std::move(stub)) {}

  const std::unique_ptr<v1::LockService::Stub> stub_;

  Mutex mu_;
  std::shared_ptr<CallGroup> call_ ABSL_GUARDED_BY(mu_);  // that waits
  bool interrupted_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace weft
