// PartitionStore is what a partition server is without its network: blobs on disk, or in memory
// with some of them on disk as well; the store's identity; and what the lock server may order.
//
// On disk: all blobs are durable. In memory: a blob is as durable as its process until it is
// persisted, by order or because the server is about to end; a restart finds what was persisted.
// Edges are on disk in any case: they are read once a pass, and nobody could make them again.
//
// Errors: as BlobStore. Thread-safety: all methods may be called from any thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/metrics.h"
#include "services/common/run_fence.h"
#include "services/common/store_folder.h"
#include "services/common/store_sync.h"
#include "services/partition_server/blob_store.h"

namespace weft {

class PartitionStore {
 public:
  // `memory`: null when blobs are kept on disk.
  PartitionStore(std::unique_ptr<StoreFolder> folder, std::unique_ptr<BlobStore> disk,
                 std::unique_ptr<BlobStore> memory);

  StoreId store_id() const { return folder_->store_id(); }
  Incarnation incarnation() const { return folder_->incarnation(); }
  bool durable() const { return memory_ == nullptr; }

  // The lock server has taken this store into its run: binds it, for ever.
  // Errors: FailedPrecondition (bound to another run), Aborted (a lower term).
  absl::Status Registered(const RunContext& context);
  // What a caller knows of the run, before anything is done for it.
  // Errors: Unavailable (not registered yet), InvalidArgument (no run id), FailedPrecondition
  // (another run; both ids), Aborted (a lower term).
  absl::Status Check(const RunContext& caller);
  RunContext context() const { return fence_.known(); }
  RunFence* fence() { return &fence_; }

  absl::StatusOr<std::unique_ptr<BlobUpload>> BeginUpload(const ShardName& name,
                                                          const BlobInfo& info);
  absl::StatusOr<BlobReader> OpenReader(const ShardName& name);
  absl::StatusOr<BlobInfo> Stat(const ShardName& name);
  absl::StatusOr<BlobInfo> Verify(const ShardName& name);
  // Where a blob of this store lies.
  Place PlaceOf(const ShardName& name) const;

  // Makes a blob durable. Repeats are fine.
  absl::Status Persist(const ShardName& name);
  // The run's manifests, newest first; none twice. Errors: Unavailable (not registered yet).
  absl::StatusOr<std::vector<BlobEntry>> Manifests() const;
  // The blobs that would end with this process.
  std::vector<ShardName> Passing() const;
  absl::StatusOr<SweepResult> Sweep(const KeepList& list);

  int64_t FreeBytes() const { return primary().FreeBytes(); }
  // The failed write that ended this store's use; its process should end.
  absl::Status write_status() const;
  BlobStoreStats stats() const { return primary().stats(); }
  void WriteMetrics(MetricsPage* page) const;

 private:
  void Swept(const SweepResult& result);
  BlobStore& primary() const { return memory_ != nullptr ? *memory_ : *disk_; }

  const std::unique_ptr<StoreFolder> folder_;
  const std::unique_ptr<BlobStore> disk_;
  const std::unique_ptr<BlobStore> memory_;
  RunFence fence_;
  Counter swept_blobs_;
  Counter swept_bytes_;
};

}  // namespace weft
