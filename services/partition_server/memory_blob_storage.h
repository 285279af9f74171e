// MemoryBlobStorage keeps blobs in memory: they are gone with the process.
#pragma once

#include <atomic>
#include <memory>

#include "services/partition_server/blob_storage.h"
#include "services/partition_server/segment_memory.h"

namespace weft {

class MemoryBlobStorage : public BlobStorage {
 public:
  // Holds at most `capacity_bytes` (of values, staged ones too).
  explicit MemoryBlobStorage(int64_t capacity_bytes);

  absl::StatusOr<std::vector<RecoveredBlob>> Recover() override;
  absl::StatusOr<std::unique_ptr<StagedBlob>> Stage(const ShardName& name,
                                                    const BlobInfo& info) override;
  absl::Status Remove(absl::Span<const ShardName> names) override;
  bool durable() const override { return false; }
  int64_t FreeBytes() const override;

 private:
  // What is in memory is counted until its last reader has let go of it.
  struct Use {
    explicit Use(int64_t capacity_bytes) : capacity(capacity_bytes) {}
    const int64_t capacity;
    std::atomic<int64_t> bytes = 0;
    SegmentMemory memory;
  };
  class Blob;
  class Staged;

  const std::shared_ptr<Use> use_;
};

}  // namespace weft
