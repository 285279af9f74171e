// LocalPartitionClient is a blob store in this process, as a trainer sees it.
#pragma once

#include "services/partition_server/blob_store.h"
#include "services/partition_server/partition_client.h"

namespace weft {

class LocalPartitionClient : public PartitionClient {
 public:
  // `store` must outlive this object.
  explicit LocalPartitionClient(BlobStore* store) : store_(store) {}

  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override {
    return store_->Get(version, out);
  }
  absl::Status Store(const PartitionVersion& version,
                     const EmbeddingPartition& partition) override {
    return store_->Put(version, partition);
  }

 private:
  BlobStore* const store_;
};

}  // namespace weft
