#include "services/partition_server/file_blob_store.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr absl::string_view kPrefix = "embeddings_";
constexpr absl::string_view kSuffix = ".h5";

// The blob that a file holds; false when it is no blob's name.
bool ParseFileName(absl::string_view file, const std::vector<std::string>& type_names,
                   PartitionVersion* name) {
  if (!absl::ConsumePrefix(&file, kPrefix) || !absl::ConsumeSuffix(&file, kSuffix)) return false;
  // A type's name may have any character: from the end.
  const size_t dot = file.rfind(".t");
  if (dot == absl::string_view::npos) return false;
  if (!absl::SimpleAtoi(file.substr(dot + 2), &name->token)) return false;
  file = file.substr(0, dot);
  const size_t underscore = file.rfind('_');
  if (underscore == absl::string_view::npos) return false;
  if (!absl::SimpleAtoi(file.substr(underscore + 1), &name->key.partition)) return false;
  for (size_t type = 0; type < type_names.size(); ++type) {
    if (type_names[type] != file.substr(0, underscore)) continue;
    name->key.entity_type = static_cast<EntityTypeId>(type);
    return true;
  }
  return false;
}

absl::Status Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot remove ", path));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileBlobStore>> FileBlobStore::Open(
    std::string folder, std::vector<std::string> type_names, double lr) {
  WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<FileBlobStore> store(
      new FileBlobStore(std::move(folder), std::move(type_names), lr));
  WEFT_RETURN_IF_ERROR(store->Scan());
  return store;
}

FileBlobStore::FileBlobStore(std::string folder, std::vector<std::string> type_names, double lr)
    : folder_(std::move(folder)), type_names_(std::move(type_names)), lr_(lr) {}

absl::Status FileBlobStore::Scan() {
  std::error_code error;
  std::vector<std::string> foreign;
  MutexLock lock(&mu_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    PartitionVersion name;
    if (ParseFileName(entry.path().filename().string(), type_names_, &name)) {
      blobs_.insert(name);
    } else {
      foreign.push_back(entry.path().string());
    }
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", folder_));
  for (const std::string& path : foreign) WEFT_RETURN_IF_ERROR(Remove(path));
  return absl::OkStatus();
}

std::string FileBlobStore::PathOf(const PartitionVersion& name) const {
  return absl::StrCat(folder_, "/", kPrefix, type_names_[static_cast<size_t>(name.key.entity_type)],
                      "_", name.key.partition, ".t", name.token, kSuffix);
}

bool FileBlobStore::Has(const PartitionVersion& name) const {
  MutexLock lock(&mu_);
  return blobs_.contains(name);
}

absl::Status FileBlobStore::Put(const PartitionVersion& name, const EmbeddingPartition& partition) {
  if (Has(name)) return CheckSameContent(name, partition);
  CheckpointMetadata metadata;
  {
    MutexLock lock(&mu_);
    metadata = metadata_;
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(WriteEmbeddingsFile(PathOf(name), partition, lr_, metadata), BlobName(name)));
  MutexLock lock(&mu_);
  blobs_.insert(name);
  return absl::OkStatus();
}

absl::Status FileBlobStore::CheckSameContent(const PartitionVersion& name,
                                             const EmbeddingPartition& partition) {
  const BlobInfo info = {partition.count(), partition.dimension()};
  WEFT_ASSIGN_OR_RETURN(const BlobInfo stored, Stat(name));
  if (stored == info) {
    EmbeddingPartition content(info.count, info.dimension);
    WEFT_RETURN_IF_ERROR(Get(name, &content));
    if (Checksum(content) == Checksum(partition)) return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(BlobName(name), ": exists with another content"));
}

absl::Status FileBlobStore::Get(const PartitionVersion& name, EmbeddingPartition* out) {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(BlobName(name), ": not here"));
  return Annotate(ReadEmbeddingsFile(PathOf(name), out), BlobName(name));
}

absl::StatusOr<BlobInfo> FileBlobStore::Stat(const PartitionVersion& name) {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(BlobName(name), ": not here"));
  const absl::StatusOr<EmbeddingsShape> shape = ReadEmbeddingsShape(PathOf(name));
  if (!shape.ok()) return Annotate(shape.status(), BlobName(name));
  return BlobInfo{shape->count, shape->dimension};
}

absl::Status FileBlobStore::Sweep(Token high_water, absl::Span<const PartitionVersion> keep) {
  const absl::flat_hash_set<PartitionVersion> kept(keep.begin(), keep.end());
  std::vector<PartitionVersion> garbage;
  {
    MutexLock lock(&mu_);
    for (const PartitionVersion& name : blobs_) {
      if (name.token <= high_water && !kept.contains(name)) garbage.push_back(name);
    }
    for (const PartitionVersion& name : garbage) blobs_.erase(name);
  }
  absl::Status status;
  for (const PartitionVersion& name : garbage) status.Update(Remove(PathOf(name)));
  return status;
}

void FileBlobStore::SetMetadata(CheckpointMetadata metadata) {
  MutexLock lock(&mu_);
  metadata_ = std::move(metadata);
}

absl::Status FileBlobStore::Adopt(const std::string& path, const PartitionVersion& name) {
  WEFT_RETURN_IF_ERROR(LinkFile(path, PathOf(name)));
  WEFT_RETURN_IF_ERROR(SyncDirectory(folder_));
  MutexLock lock(&mu_);
  blobs_.insert(name);
  return absl::OkStatus();
}

absl::Status FileBlobStore::LinkTo(const PartitionVersion& name, const std::string& path) const {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(BlobName(name), ": not here"));
  return LinkFile(PathOf(name), path);
}

}  // namespace weft
