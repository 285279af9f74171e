// MemoryBlobStore keeps blobs in memory: they are gone with the process.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "services/common/mutex.h"
#include "services/partition_server/blob_store.h"

namespace weft {

class MemoryBlobStore : public BlobStore {
 public:
  absl::Status Put(const PartitionVersion& name, const EmbeddingPartition& partition) override;
  // Errors: also DataLoss when the memory no longer holds what was put there.
  absl::Status Get(const PartitionVersion& name, EmbeddingPartition* out) override;
  absl::StatusOr<BlobInfo> Stat(const PartitionVersion& name) override;
  absl::Status Sweep(Token high_water, absl::Span<const PartitionVersion> keep) override;

 private:
  struct Blob {
    EmbeddingPartition partition;
    uint64_t checksum = 0;
  };
  // Immutable once stored, so that readers copy without the lock.
  using BlobPtr = std::shared_ptr<const Blob>;

  absl::StatusOr<BlobPtr> Find(const PartitionVersion& name) const ABSL_LOCKS_EXCLUDED(mu_);

  mutable Mutex mu_;
  absl::flat_hash_map<PartitionVersion, BlobPtr> blobs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
