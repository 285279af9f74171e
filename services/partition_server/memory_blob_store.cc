#include "services/partition_server/memory_blob_store.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {

absl::Status MemoryBlobStore::Put(const PartitionVersion& name,
                                  const EmbeddingPartition& partition) {
  auto blob = std::make_shared<Blob>();
  blob->partition = partition.Clone();
  blob->checksum = Checksum(blob->partition);
  MutexLock lock(&mu_);
  const auto [found, is_new] = blobs_.try_emplace(name, blob);
  if (is_new || found->second->checksum == blob->checksum) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(BlobName(name), ": exists with another content"));
}

absl::Status MemoryBlobStore::Get(const PartitionVersion& name, EmbeddingPartition* out) {
  WEFT_ASSIGN_OR_RETURN(const BlobPtr blob, Find(name));
  WEFT_RETURN_IF_ERROR(
      CheckShape(name, {blob->partition.count(), blob->partition.dimension()}, *out));
  std::ranges::copy(blob->partition.embeddings.span(), out->embeddings.data());
  std::ranges::copy(blob->partition.adagrad_sums.span(), out->adagrad_sums.data());
  if (Checksum(*out) != blob->checksum) {
    return absl::DataLossError(absl::StrCat(BlobName(name), ": checksum mismatch"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BlobInfo> MemoryBlobStore::Stat(const PartitionVersion& name) {
  WEFT_ASSIGN_OR_RETURN(const BlobPtr blob, Find(name));
  return BlobInfo{blob->partition.count(), blob->partition.dimension()};
}

absl::Status MemoryBlobStore::Sweep(Token high_water, absl::Span<const PartitionVersion> keep) {
  const absl::flat_hash_set<PartitionVersion> kept(keep.begin(), keep.end());
  MutexLock lock(&mu_);
  absl::erase_if(blobs_, [&](const auto& entry) {
    return entry.first.token <= high_water && !kept.contains(entry.first);
  });
  return absl::OkStatus();
}

absl::StatusOr<MemoryBlobStore::BlobPtr> MemoryBlobStore::Find(const PartitionVersion& name) const {
  MutexLock lock(&mu_);
  const auto found = blobs_.find(name);
  if (found == blobs_.end()) {
    return absl::NotFoundError(absl::StrCat(BlobName(name), ": not here"));
  }
  return found->second;
}

}  // namespace weft
