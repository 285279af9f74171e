// BlobStore keeps versions of embedding partitions: immutable blobs, named by the partition and the
// token of the grant that made them.
//
// A blob that Put has acknowledged is whole and, in a durable store, survives the process and the
// machine being killed. Nothing half-written is ever found by Get. Deletion is by keep list only:
// a store never judges by itself that a blob is old.
// Errors of all methods: NotFound (no such blob), DataLoss (damaged), ResourceExhausted (full),
// else Internal. Messages name partition and token. Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/common/embedding_partition.h"
#include "services/lock_server/lock_client.h"

namespace weft {

struct BlobInfo {
  int64_t count = 0;
  int64_t dimension = 0;
  bool operator==(const BlobInfo&) const = default;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Stores a blob. The same content under the same name again is fine.
  // Errors: AlreadyExists when another content has this name; it stays as it is.
  virtual absl::Status Put(const PartitionVersion& name, const EmbeddingPartition& partition) = 0;

  // Fills `out`, which already has the blob's count and dimension.
  // Errors: FailedPrecondition when it has another shape (names both).
  virtual absl::Status Get(const PartitionVersion& name, EmbeddingPartition* out) = 0;

  virtual absl::StatusOr<BlobInfo> Stat(const PartitionVersion& name) = 0;

  // Deletes every blob with a token <= `high_water` that `keep` does not name, and what was left
  // half-written.
  virtual absl::Status Sweep(Token high_water, absl::Span<const PartitionVersion> keep) = 0;
};

// "partition 3 of entity type 0, token 1:7" (term 1, the 7th of it).
std::string BlobName(const PartitionVersion& name);
// FailedPrecondition when `out` is not of the blob's shape.
absl::Status CheckShape(const PartitionVersion& name, const BlobInfo& blob,
                        const EmbeddingPartition& out);

}  // namespace weft
