// LocalPartitionClient moves partitions to and from a blob store in this process.
#pragma once

#include <cstdint>

#include "services/partition_server/blob_store.h"
#include "services/partition_server/partition_client.h"

namespace weft {

class LocalPartitionClient : public PartitionClient {
 public:
  // `store` must outlive this object.
  LocalPartitionClient(BlobStore* store, int64_t shard_bytes)
      : store_(store), shard_bytes_(shard_bytes) {}

  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override;
  absl::Status Store(const PartitionVersion& version, const EmbeddingPartition& partition) override;

 private:
  BlobStore* const store_;
  const int64_t shard_bytes_;
};

}  // namespace weft
