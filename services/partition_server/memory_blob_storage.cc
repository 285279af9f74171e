#include "services/partition_server/memory_blob_storage.h"

#include <malloc.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {

// Its segments are shared with readers, which need the blob no longer.
class MemoryBlobStorage::Blob : public StoredBlob {
 public:
  using Segments = std::vector<SegmentBuffer>;

  Blob(ShardName name, BlobInfo info, std::vector<uint64_t> checksums, Segments segments)
      : StoredBlob(name, info, std::move(checksums)), segments_(std::move(segments)) {}

  absl::StatusOr<SegmentBuffer> Read(int64_t segment) const override {
    return segments_[static_cast<size_t>(segment)];
  }

 private:
  const Segments segments_;
};

class MemoryBlobStorage::Staged : public StagedBlob {
 public:
  Staged(std::shared_ptr<Use> use, const ShardName& name, const BlobInfo& info)
      : use_(std::move(use)), name_(name), info_(info) {}

  absl::StatusOr<uint64_t> Append(absl::Span<const absl::string_view> pieces) override {
    size_t bytes = 0;
    for (const absl::string_view piece : pieces) bytes += piece.size();
    const auto size = static_cast<int64_t>(bytes);
    if (use_->bytes.fetch_add(size) + size > use_->capacity) {
      use_->bytes -= size;
      return absl::ResourceExhaustedError(
          absl::StrCat("more than the ", use_->capacity, " bytes that this store may hold"));
    }
    char* const allocated = use_->memory.Allocate(bytes);
    if (allocated == nullptr) {
      use_->bytes -= size;
      return absl::ResourceExhaustedError("out of memory");
    }
    const std::shared_ptr<char> memory(allocated, [use = use_, bytes](char* p) {
      use->memory.Free(p, bytes);
      use->bytes -= static_cast<int64_t>(bytes);
    });
    CopyingChecksum checksum;
    char* out = memory.get();
    for (const absl::string_view piece : pieces) {
      checksum.Copy(piece.data(), piece.size(), out);
      out += piece.size();
    }
    segments_.push_back({{memory.get(), bytes}, memory});
    return checksum.Get();
  }

  absl::Status Seal(absl::Span<const uint64_t> checksums) override {
    checksums_.assign(checksums.begin(), checksums.end());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const StoredBlob>> Publish() override {
    return std::make_shared<const Blob>(name_, info_, std::move(checksums_), std::move(segments_));
  }

 private:
  const std::shared_ptr<Use> use_;
  const ShardName name_;
  const BlobInfo info_;
  Blob::Segments segments_;
  std::vector<uint64_t> checksums_;
};

MemoryBlobStorage::MemoryBlobStorage(int64_t capacity_bytes)
    : use_(std::make_shared<Use>(capacity_bytes)) {}

absl::StatusOr<std::vector<RecoveredBlob>> MemoryBlobStorage::Recover() {
  return std::vector<RecoveredBlob>();
}

absl::StatusOr<std::unique_ptr<StagedBlob>> MemoryBlobStorage::Stage(const ShardName& name,
                                                                     const BlobInfo& info) {
  return std::make_unique<Staged>(use_, name, info);
}

absl::Status MemoryBlobStorage::Remove(absl::Span<const ShardName> names) {
  // The last to let go of a blob frees it. What receiving its successor has left in the heap, free
  // but scattered, goes back with it.
  malloc_trim(0);
  return absl::OkStatus();
}

int64_t MemoryBlobStorage::FreeBytes() const { return use_->capacity - use_->bytes; }

}  // namespace weft
