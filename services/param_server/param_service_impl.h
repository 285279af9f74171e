// ParamServiceImpl is RowBlockStore behind gRPC: it translates, and keeps what may wait for a disk
// off gRPC's threads.
//
// Thread-safety: gRPC calls it from many threads.
#pragma once

#include <grpcpp/support/server_callback.h>

#include "services/common/run_fence.h"
#include "services/common/transfer_metrics.h"
#include "services/common/work_pool.h"
#include "services/param_server/row_block_store.h"
#include "weft/v1/param_service.grpc.pb.h"

namespace weft {

class ParamServiceImpl : public v1::ParamService::CallbackService {
 public:
  // All must outlive this object, and the pool its calls. `transfers` counts bytes; may be null.
  ParamServiceImpl(RowBlockStore* store, WorkPool* pool, TransferMetrics* transfers = nullptr)
      : store_(store), pool_(pool), transfers_(transfers) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerUnaryReactor* Push(grpc::CallbackServerContext* context,
                                 const v1::PushRequest* request,
                                 v1::PushResponse* response) override;

 private:
  RowBlockStore* const store_;
  WorkPool* const pool_;
  TransferMetrics* const transfers_;
};

}  // namespace weft
