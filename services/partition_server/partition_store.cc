#include "services/partition_server/partition_store.h"

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status NotRegistered() {
  return absl::UnavailableError("this partition server has not registered yet");
}

}  // namespace

PartitionStore::PartitionStore(std::unique_ptr<StoreFolder> folder, std::unique_ptr<BlobStore> disk,
                               std::unique_ptr<BlobStore> memory)
    : folder_(std::move(folder)),
      disk_(std::move(disk)),
      memory_(std::move(memory)),
      fence_(RunContext{folder_->run_id(), 0, 0, std::nullopt}) {}

absl::Status PartitionStore::Registered(const RunContext& context) {
  WEFT_RETURN_IF_ERROR(folder_->BindRun(context.run_id));
  return fence_.Check(context);
}

absl::Status PartitionStore::Check(const RunContext& caller) {
  if (caller.run_id.empty()) return absl::InvalidArgumentError("the call names no run");
  if (folder_->run_id().empty()) {
    return NotRegistered();
  }
  return fence_.Check(caller);
}

absl::StatusOr<std::unique_ptr<BlobUpload>> PartitionStore::BeginUpload(const ShardName& name,
                                                                        const BlobInfo& info) {
  if (name.version.key.entity_type == kEdgesType) return disk_->BeginUpload(name, info);
  if (memory_ != nullptr) {
    const absl::StatusOr<BlobInfo> persisted = disk_->Stat(name);
    if (persisted.ok() && *persisted != info) {
      return absl::AlreadyExistsError(
          absl::StrCat(ToString(name), ": exists with another content"));
    }
  }
  return primary().BeginUpload(name, info);
}

absl::StatusOr<BlobReader> PartitionStore::OpenReader(const ShardName& name) {
  absl::StatusOr<BlobReader> reader = primary().OpenReader(name);
  if (reader.ok() || memory_ == nullptr) return reader;
  absl::StatusOr<BlobReader> persisted = disk_->OpenReader(name);
  return absl::IsNotFound(persisted.status()) ? std::move(reader) : std::move(persisted);
}

absl::StatusOr<BlobInfo> PartitionStore::Stat(const ShardName& name) {
  WEFT_ASSIGN_OR_RETURN(const BlobReader reader, OpenReader(name));
  return reader.info();
}

absl::StatusOr<BlobInfo> PartitionStore::Verify(const ShardName& name) {
  absl::StatusOr<BlobInfo> info = primary().Verify(name);
  if (info.ok() || memory_ == nullptr) return info;
  absl::StatusOr<BlobInfo> persisted = disk_->Verify(name);
  return absl::IsNotFound(persisted.status()) ? std::move(info) : std::move(persisted);
}

Place PartitionStore::PlaceOf(const ShardName& name) const {
  const bool on_disk = memory_ == nullptr || disk_->Stat(name).ok();
  return {store_id(), on_disk ? Incarnation{0} : incarnation()};
}

absl::Status PartitionStore::Persist(const ShardName& name) {
  if (memory_ == nullptr) return disk_->Stat(name).status();
  if (disk_->Stat(name).ok()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const BlobReader reader, memory_->OpenReader(name));
  return CopyBlob(reader, name, disk_.get());
}

absl::StatusOr<std::vector<BlobEntry>> PartitionStore::Manifests() const {
  if (folder_->run_id().empty()) return NotRegistered();
  std::map<std::pair<Token, PartitionId>, BlobEntry, std::greater<>> manifests;
  for (const BlobStore* store : {memory_.get(), disk_.get()}) {
    if (store == nullptr) continue;
    for (BlobEntry& entry : store->List()) {
      const PartitionVersion& version = entry.name.version;
      if (version.key.entity_type != kManifestType || entry.damaged) continue;
      manifests.insert_or_assign({version.token, version.key.partition}, std::move(entry));
    }
  }
  std::vector<BlobEntry> list;
  for (auto& [name, entry] : manifests) list.push_back(std::move(entry));
  return list;
}

std::vector<ShardName> PartitionStore::Passing() const {
  std::vector<ShardName> names;
  if (memory_ == nullptr) return names;
  for (const BlobEntry& entry : memory_->List()) {
    if (!entry.damaged && !disk_->Stat(entry.name).ok()) names.push_back(entry.name);
  }
  return names;
}

absl::StatusOr<SweepResult> PartitionStore::Sweep(const KeepList& list) {
  WEFT_ASSIGN_OR_RETURN(SweepResult result,
                        primary().Sweep(list.high_water, list.keep, list.keep_tokens));
  Swept(result);
  if (memory_ != nullptr) {
    WEFT_ASSIGN_OR_RETURN(const SweepResult persisted,
                          disk_->Sweep(list.high_water, list.keep, list.keep_tokens));
    Swept(persisted);
  }
  return result;
}

absl::Status PartitionStore::write_status() const {
  absl::Status status = disk_->write_status();
  if (memory_ != nullptr) status.Update(memory_->write_status());
  return status;
}

void PartitionStore::Swept(const SweepResult& result) {
  swept_blobs_.Add(static_cast<double>(result.blobs));
  swept_bytes_.Add(static_cast<double>(result.bytes));
}

void PartitionStore::WriteMetrics(MetricsPage* page) const {
  const auto state = [&](absl::string_view storage, absl::string_view name, int64_t blobs,
                         int64_t bytes) {
    const MetricLabel labels[] = {{"storage", storage}, {"state", name}};
    page->AddGauge("weft_partition_blobs", "Blobs, by storage and state.", labels,
                   static_cast<double>(blobs));
    page->AddGauge("weft_partition_blob_bytes", "Bytes of blobs, by storage and state.", labels,
                   static_cast<double>(bytes));
  };
  const auto storage = [&](absl::string_view name, const BlobStore* store) {
    const BlobStoreStats stats = store != nullptr ? store->stats() : BlobStoreStats();
    state(name, "whole", stats.blobs - stats.damaged, stats.bytes - stats.damaged_bytes);
    state(name, "damaged", stats.damaged, stats.damaged_bytes);
    state(name, "uploading", stats.uploads, stats.upload_bytes);
  };
  storage("disk", disk_.get());
  storage("memory", memory_.get());
  page->AddGauge("weft_partition_free_bytes", "What uploads may still take.", {},
                 static_cast<double>(FreeBytes()));
  page->AddCounter("weft_partition_swept_blobs_total", "Blobs deleted by keep list.", {},
                   swept_blobs_.value());
  page->AddCounter("weft_partition_swept_bytes_total", "Bytes of blobs deleted by keep list.", {},
                   swept_bytes_.value());
  disk_->WriteStorageMetrics(page);
}

}  // namespace weft
