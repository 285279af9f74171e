#include "tests/simulation/blob_disk.h"

#include <iterator>
#include <utility>

namespace weft::simulation {
namespace {

class Stored : public StoredBlob {
 public:
  Stored(const ShardName& name, std::shared_ptr<const BlobDisk::Blob> blob)
      : StoredBlob(name, blob->info, blob->checksums), blob_(std::move(blob)) {}

  absl::StatusOr<SegmentBuffer> Read(int64_t segment) const override {
    return SegmentBuffer{blob_->segments[static_cast<size_t>(segment)], blob_};
  }

 private:
  const std::shared_ptr<const BlobDisk::Blob> blob_;
};

class Staged : public StagedBlob {
 public:
  Staged(BlobDisk* disk, const ShardName& name, const BlobInfo& info) : disk_(disk), name_(name) {
    blob_->info = info;
  }
  ~Staged() override { disk_->used -= bytes_; }

  absl::StatusOr<uint64_t> Append(absl::Span<const absl::string_view> pieces) override {
    std::string segment;
    for (const absl::string_view piece : pieces) segment.append(piece.data(), piece.size());
    const auto bytes = static_cast<int64_t>(segment.size());
    if (disk_->used + bytes > disk_->capacity) return absl::ResourceExhaustedError("disk full");
    disk_->used += bytes;
    bytes_ += bytes;
    blob_->segments.push_back(std::move(segment));
    return SegmentChecksum({blob_->segments.back()});
  }

  absl::Status Seal(absl::Span<const uint64_t> checksums) override {
    blob_->checksums.assign(checksums.begin(), checksums.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const StoredBlob>> Publish() override {
    const bool fails = std::exchange(disk_->fails, false);
    // Of a write that failed nobody knows whether it was done.
    if (!fails || blob_->info.checksum % 2 == 0) {
      blob_->synced = !disk_->answers_before_sync;
      disk_->blobs[name_] = blob_;
      bytes_ = 0;
    }
    if (fails) return absl::InternalError("the disk failed");
    return std::make_shared<const Stored>(name_, blob_);
  }

 private:
  BlobDisk* const disk_;
  const ShardName name_;
  const std::shared_ptr<BlobDisk::Blob> blob_ = std::make_shared<BlobDisk::Blob>();
  int64_t bytes_ = 0;
};

}  // namespace

void BlobDisk::Crash() {
  std::erase_if(blobs, [](const auto& entry) { return !entry.second->synced; });
  used = 0;
  for (const auto& [name, blob] : blobs) used += blob->info.bytes;
}

const BlobDisk::Blob* BlobDisk::Find(const ShardName& name) const {
  const auto found = blobs.find(name);
  return found == blobs.end() ? nullptr : found->second.get();
}

std::optional<ShardName> BlobDisk::Damage(uint32_t chance) {
  if (blobs.empty()) return std::nullopt;
  const auto [name, blob] = *std::next(blobs.begin(), static_cast<long>(chance % blobs.size()));
  blob->damaged = true;
  blob->record_lost = blob->segments.empty() || chance / blobs.size() % 4 == 0;
  if (!blob->record_lost) blob->segments.back().back() ^= 1;
  return name;
}

absl::StatusOr<std::vector<RecoveredBlob>> DiskStorage::Recover() {
  std::vector<RecoveredBlob> recovered;
  for (const auto& [name, blob] : disk_->blobs) {
    recovered.push_back({std::make_shared<const Stored>(name, blob), blob->record_lost});
  }
  return recovered;
}

absl::StatusOr<std::unique_ptr<StagedBlob>> DiskStorage::Stage(const ShardName& name,
                                                               const BlobInfo& info) {
  return std::make_unique<Staged>(disk_, name, info);
}

absl::Status DiskStorage::Remove(absl::Span<const ShardName> names) {
  for (const ShardName& name : names) {
    const auto found = disk_->blobs.find(name);
    if (found == disk_->blobs.end()) continue;
    disk_->used -= found->second->info.bytes;
    disk_->blobs.erase(found);
  }
  return absl::OkStatus();
}

}  // namespace weft::simulation
