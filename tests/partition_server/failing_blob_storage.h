// FailingBlobStorage passes everything on to another storage, except for what a test breaks.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/partition_server/blob_storage.h"

namespace weft::testing {

// What fails from now on; OK: nothing. Shared with the storage, which the store owns.
struct Faults {
  absl::Status stage;
  absl::Status append;
  absl::Status seal;
  absl::Status publish;
  absl::Status remove;
  absl::Status read;
  bool flip_bits = false;  // of what is read
};

class FailingBlobStorage : public BlobStorage {
 public:
  FailingBlobStorage(std::unique_ptr<BlobStorage> real, std::shared_ptr<const Faults> faults)
      : real_(std::move(real)), faults_(std::move(faults)) {}

  absl::StatusOr<std::vector<RecoveredBlob>> Recover() override { return real_->Recover(); }

  absl::StatusOr<std::unique_ptr<StagedBlob>> Stage(const ShardName& name,
                                                    const BlobInfo& info) override {
    if (!faults_->stage.ok()) return faults_->stage;
    auto staged = real_->Stage(name, info);
    if (!staged.ok()) return staged.status();
    return std::make_unique<Staged>(*std::move(staged), faults_);
  }

  absl::Status Remove(absl::Span<const ShardName> names) override {
    return faults_->remove.ok() ? real_->Remove(names) : faults_->remove;
  }
  bool durable() const override { return real_->durable(); }
  int64_t FreeBytes() const override { return real_->FreeBytes(); }

 private:
  class Blob : public StoredBlob {
   public:
    Blob(std::shared_ptr<const StoredBlob> real, std::shared_ptr<const Faults> faults)
        : StoredBlob(real->name, real->info, real->checksums),
          real_(std::move(real)),
          faults_(std::move(faults)) {}

    absl::StatusOr<SegmentBuffer> Read(int64_t segment) const override {
      if (!faults_->read.ok()) return faults_->read;
      absl::StatusOr<SegmentBuffer> buffer = real_->Read(segment);
      if (!buffer.ok() || !faults_->flip_bits) return buffer;
      auto copy = std::make_shared<std::string>(buffer->bytes);
      copy->front() = static_cast<char>(copy->front() ^ 1);
      return SegmentBuffer{*copy, copy};
    }

   private:
    const std::shared_ptr<const StoredBlob> real_;
    const std::shared_ptr<const Faults> faults_;
  };

  class Staged : public StagedBlob {
   public:
    Staged(std::unique_ptr<StagedBlob> real, std::shared_ptr<const Faults> faults)
        : real_(std::move(real)), faults_(std::move(faults)) {}

    absl::StatusOr<uint64_t> Append(absl::Span<const absl::string_view> pieces) override {
      if (!faults_->append.ok()) return faults_->append;
      return real_->Append(pieces);
    }
    absl::Status Seal(absl::Span<const uint64_t> checksums) override {
      return faults_->seal.ok() ? real_->Seal(checksums) : faults_->seal;
    }
    absl::StatusOr<std::shared_ptr<const StoredBlob>> Publish() override {
      if (!faults_->publish.ok()) return faults_->publish;
      auto blob = real_->Publish();
      if (!blob.ok()) return blob.status();
      return std::make_shared<const Blob>(*std::move(blob), faults_);
    }

   private:
    const std::unique_ptr<StagedBlob> real_;
    const std::shared_ptr<const Faults> faults_;
  };

  const std::unique_ptr<BlobStorage> real_;
  const std::shared_ptr<const Faults> faults_;
};

}  // namespace weft::testing
