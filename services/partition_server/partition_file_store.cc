#include "services/partition_server/partition_file_store.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/partition_server/blob_format.h"

namespace weft {
namespace {

constexpr absl::string_view kPrefix = "embeddings_";
constexpr absl::string_view kSuffix = ".h5";

// The version that a file holds; false when it is no version's name.
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

absl::StatusOr<std::unique_ptr<PartitionFileStore>> PartitionFileStore::Open(
    std::string folder, std::vector<std::string> type_names, double lr) {
  WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
  std::unique_ptr<PartitionFileStore> store(
      new PartitionFileStore(std::move(folder), std::move(type_names), lr));
  WEFT_RETURN_IF_ERROR(store->Scan());
  return store;
}

PartitionFileStore::PartitionFileStore(std::string folder, std::vector<std::string> type_names,
                                       double lr)
    : folder_(std::move(folder)), type_names_(std::move(type_names)), lr_(lr) {}

absl::Status PartitionFileStore::Scan() {
  std::error_code error;
  std::vector<std::string> foreign;
  MutexLock lock(&mu_);
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    PartitionVersion name;
    if (ParseFileName(entry.path().filename().string(), type_names_, &name)) {
      versions_.insert(name);
    } else {
      foreign.push_back(entry.path().string());
    }
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", folder_));
  for (const std::string& path : foreign) WEFT_RETURN_IF_ERROR(Remove(path));
  return absl::OkStatus();
}

std::string PartitionFileStore::PathOf(const PartitionVersion& name) const {
  return absl::StrCat(folder_, "/", kPrefix, type_names_[static_cast<size_t>(name.key.entity_type)],
                      "_", name.key.partition, ".t", name.token, kSuffix);
}

bool PartitionFileStore::Has(const PartitionVersion& name) const {
  MutexLock lock(&mu_);
  return versions_.contains(name);
}

absl::Status PartitionFileStore::Store(const PartitionVersion& name,
                                       const EmbeddingPartition& partition) {
  if (Has(name)) return CheckSameContent(name, partition);
  CheckpointMetadata metadata;
  {
    MutexLock lock(&mu_);
    metadata = metadata_;
  }
  WEFT_RETURN_IF_ERROR(
      Annotate(WriteEmbeddingsFile(PathOf(name), partition, lr_, metadata), ToString(name)));
  MutexLock lock(&mu_);
  versions_.insert(name);
  return absl::OkStatus();
}

absl::Status PartitionFileStore::CheckSameContent(const PartitionVersion& name,
                                                  const EmbeddingPartition& partition) {
  WEFT_ASSIGN_OR_RETURN(const EmbeddingsShape shape, Stat(name));
  if (shape.count == partition.count() && shape.dimension == partition.dimension()) {
    EmbeddingPartition content(shape.count, shape.dimension);
    WEFT_RETURN_IF_ERROR(Read(name, &content));
    if (Checksum(content) == Checksum(partition)) return absl::OkStatus();
  }
  return absl::AlreadyExistsError(absl::StrCat(ToString(name), ": exists with another content"));
}

absl::Status PartitionFileStore::Read(const PartitionVersion& name, EmbeddingPartition* out) {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(ToString(name), ": not here"));
  return Annotate(ReadEmbeddingsFile(PathOf(name), out), ToString(name));
}

absl::StatusOr<EmbeddingsShape> PartitionFileStore::Stat(const PartitionVersion& name) {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(ToString(name), ": not here"));
  const absl::StatusOr<EmbeddingsShape> shape = ReadEmbeddingsShape(PathOf(name));
  if (!shape.ok()) return Annotate(shape.status(), ToString(name));
  return shape;
}

absl::Status PartitionFileStore::Sweep(Token high_water, absl::Span<const PartitionVersion> keep) {
  const absl::flat_hash_set<PartitionVersion> kept(keep.begin(), keep.end());
  std::vector<PartitionVersion> garbage;
  {
    MutexLock lock(&mu_);
    for (const PartitionVersion& name : versions_) {
      if (name.token <= high_water && !kept.contains(name)) garbage.push_back(name);
    }
    for (const PartitionVersion& name : garbage) versions_.erase(name);
  }
  absl::Status status;
  for (const PartitionVersion& name : garbage) status.Update(Remove(PathOf(name)));
  return status;
}

void PartitionFileStore::SetMetadata(CheckpointMetadata metadata) {
  MutexLock lock(&mu_);
  metadata_ = std::move(metadata);
}

absl::Status PartitionFileStore::Adopt(const std::string& path, const PartitionVersion& name) {
  WEFT_RETURN_IF_ERROR(LinkFile(path, PathOf(name)));
  WEFT_RETURN_IF_ERROR(SyncDirectory(folder_));
  MutexLock lock(&mu_);
  versions_.insert(name);
  return absl::OkStatus();
}

absl::Status PartitionFileStore::LinkTo(const PartitionVersion& name,
                                        const std::string& path) const {
  if (!Has(name)) return absl::NotFoundError(absl::StrCat(ToString(name), ": not here"));
  return LinkFile(PathOf(name), path);
}

}  // namespace weft
