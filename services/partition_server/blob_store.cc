#include "services/partition_server/blob_store.h"

#include "absl/strings/str_cat.h"

namespace weft {

std::string BlobName(const PartitionVersion& name) {
  return absl::StrCat("partition ", name.key.partition, " of entity type ", name.key.entity_type,
                      ", token ", name.token >> 40, ":", name.token & ((Token{1} << 40) - 1));
}

absl::Status CheckShape(const PartitionVersion& name, const BlobInfo& blob,
                        const EmbeddingPartition& out) {
  if (blob.count == out.count() && blob.dimension == out.dimension()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(BlobName(name), ": has ", blob.count, " x ", blob.dimension, " values, not the ",
                   out.count(), " x ", out.dimension(), " expected"));
}

}  // namespace weft
