// PartitionServiceImpl answers the calls of proto/weft/v1/partition_service.proto from a
// PartitionStore. It translates and counts; it decides nothing.
//
// Blobs travel as raw bytes (segment_codec.h): a received segment is copied once, by the storage; a
// sent one never, if it lies in memory. At most one segment of a stream is here beside what gRPC's
// windows hold. What may block (disks, checksums) runs on the worker pool.
//
// Thread-safety: called by gRPC from any thread.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "services/common/metrics.h"
#include "services/common/transfer_metrics.h"
#include "services/common/work_pool.h"
#include "services/partition_server/partition_store.h"
#include "services/partition_server/store_orders.h"
#include "weft/v1/partition_service.grpc.pb.h"

namespace weft {

// Counted since the start of the process.
struct PartitionServiceStats {
  std::atomic<int64_t> blobs_stored = 0;
  std::atomic<int64_t> blobs_sent = 0;
  // Refused, by what was wrong.
  std::atomic<int64_t> malformed = 0;        // segments out of order, lengths that cannot be, ...
  std::atomic<int64_t> wrong_checksums = 0;  // of what was received
  std::atomic<int64_t> wrong_runs = 0;
  std::atomic<int64_t> stale_calls = 0;  // of a lower term, too early, or swept during the upload
  std::atomic<int64_t> other_contents = 0;  // under a name that is taken
  std::atomic<int64_t> no_room = 0;
};

using PartitionServiceBase = v1::PartitionService::WithRawCallbackMethod_PutBlob<
    v1::PartitionService::WithRawCallbackMethod_GetBlob<
        v1::PartitionService::WithCallbackMethod_StatBlob<
            v1::PartitionService::WithCallbackMethod_CopyBlob<
                v1::PartitionService::WithCallbackMethod_ReadRows<
                    v1::PartitionService::WithCallbackMethod_ListManifests<
                        v1::PartitionService::Service>>>>>>;

class PartitionServiceImpl : public PartitionServiceBase {
 public:
  // All must outlive this object, and the server that this object is registered with.
  // `background`: for copies, which wait for other servers; they must not keep the threads that
  // those wait for.
  // `transfers` counts bytes by role; may be null. `on_failure` is told, by any thread, when a call
  // finds that the store can write no more: the process is about to end, and to be started again,
  // and to callers it is unavailable.
  PartitionServiceImpl(PartitionStore* store, StoreOrders* orders, WorkPool* workers,
                       WorkPool* background, TransferMetrics* transfers = nullptr,
                       std::function<void()> on_failure = nullptr)
      : store_(store),
        orders_(orders),
        workers_(workers),
        background_(background),
        transfers_(transfers),
        on_failure_(std::move(on_failure)) {}

  const PartitionServiceStats& stats() const { return stats_; }
  void WriteMetrics(MetricsPage* page) const;

  grpc::ServerReadReactor<grpc::ByteBuffer>* PutBlob(grpc::CallbackServerContext* context,
                                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GetBlob(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* StatBlob(grpc::CallbackServerContext* context,
                                     const v1::StatBlobRequest* request,
                                     v1::StatBlobResponse* response) override;
  grpc::ServerUnaryReactor* CopyBlob(grpc::CallbackServerContext* context,
                                     const v1::CopyBlobRequest* request,
                                     v1::CopyBlobResponse* response) override;
  grpc::ServerUnaryReactor* ReadRows(grpc::CallbackServerContext* context,
                                     const v1::ReadRowsRequest* request,
                                     v1::ReadRowsResponse* response) override;
  grpc::ServerUnaryReactor* ListManifests(grpc::CallbackServerContext* context,
                                          const v1::ListManifestsRequest* request,
                                          v1::ListManifestsResponse* response) override;

 private:
  class PutReactor;
  class GetReactor;

  void Received(PeerRole peer, int64_t bytes);
  void Sent(PeerRole peer, int64_t bytes);
  // What the caller is told. Counts what was refused.
  grpc::Status Answer(const absl::Status& status);
  // Runs `call` on a pool and answers what it gives.
  template <typename Call>
  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, WorkPool* pool, Call call);

  absl::Status Stat(const v1::StatBlobRequest& request, v1::StatBlobResponse* response);
  absl::Status Copy(const v1::CopyBlobRequest& request, v1::CopyBlobResponse* response);
  absl::Status Read(const v1::ReadRowsRequest& request, v1::ReadRowsResponse* response);
  absl::Status List(v1::ListManifestsResponse* response);

  PartitionStore* const store_;
  StoreOrders* const orders_;
  WorkPool* const workers_;
  WorkPool* const background_;
  TransferMetrics* const transfers_;
  const std::function<void()> on_failure_;
  PartitionServiceStats stats_;
};

}  // namespace weft
