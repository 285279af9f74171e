// PartitionClient moves versions of embedding partitions between a trainer and where they are kept.
//
// A version (partition key, token) is immutable: storing the same one twice with the same content
// is fine, with another content AlreadyExists. Which token is current is known only to the lock
// server. Implementations: PartitionFileStore (one machine), ClusterPartitionClient (the partition
// servers of a cluster), LocalPartitionClient (a blob store in this process). Errors: NotFound
// (this version is not here), DataLoss (its checksum is wrong), ResourceExhausted (disk full),
// Unavailable. Thread-safety: may be called from any thread.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/embedding_partition.h"
#include "services/common/types.h"

namespace weft {

class PartitionClient {
 public:
  virtual ~PartitionClient() = default;

  // Fills `out`, which already has the partition's count and dimension.
  virtual absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) = 0;

  // Durable when it returns (in a cluster: as its stores promise). `partition` is not written by
  // anybody meanwhile.
  virtual absl::Status Store(const PartitionVersion& version,
                             const EmbeddingPartition& partition) = 0;
};

}  // namespace weft
