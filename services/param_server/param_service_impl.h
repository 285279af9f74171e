// ParamServiceImpl is RowBlockStore behind gRPC: it translates, and keeps what may wait for a disk
// off gRPC's threads. A store that can write no more is about to end, and be started again: to its
// callers it is unavailable.
//
// Thread-safety: gRPC calls it from many threads.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <utility>

#include "services/common/run_fence.h"
#include "services/common/transfer_metrics.h"
#include "services/common/work_pool.h"
#include "services/param_server/row_block_store.h"
#include "weft/v1/param_service.grpc.pb.h"

namespace weft {

class ParamServiceImpl : public v1::ParamService::CallbackService {
 public:
  // All must outlive this object, and the pool its calls. `transfers` counts bytes; may be null.
  // `on_failure` is told, by any thread, when a call finds that the store can write no more.
  ParamServiceImpl(RowBlockStore* store, WorkPool* pool, TransferMetrics* transfers = nullptr,
                   std::function<void()> on_failure = nullptr)
      : store_(store), pool_(pool), transfers_(transfers), on_failure_(std::move(on_failure)) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const v1::PushRequest* request,
                                 v1::PushResponse* response) override;

 private:
  // What the caller is told.
  absl::Status Told(const absl::Status& status);

  RowBlockStore* const store_;
  WorkPool* const pool_;
  TransferMetrics* const transfers_;
  const std::function<void()> on_failure_;
};

}  // namespace weft
