#include "services/partition_server/blob_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status NotHere(const ShardName& name) {
  return absl::NotFoundError(absl::StrCat(ToString(name), ": not here"));
}

absl::Status Damaged(const ShardName& name, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(ToString(name), ": ", what));
}

absl::Status Swept(const ShardName& name) {
  return absl::AbortedError(absl::StrCat(ToString(name), ": was swept during the upload"));
}

int64_t TotalBytes(absl::Span<const absl::string_view> pieces) {
  size_t bytes = 0;
  for (const absl::string_view piece : pieces) bytes += piece.size();
  return static_cast<int64_t>(bytes);
}

}  // namespace

// --- BlobUpload ---

BlobUpload::BlobUpload(BlobStore* store, const ShardName& name, const BlobInfo& info,
                       std::unique_ptr<StagedBlob> staged)
    : store_(store), name_(name), info_(info), staged_(std::move(staged)) {}

BlobUpload::~BlobUpload() { store_->EndUpload(this); }

absl::Status BlobUpload::Finish(absl::Status status) {
  status_ = std::move(status);
  store_->EndUpload(this);
  return status_;
}

absl::Status BlobUpload::Append(int64_t index, uint64_t checksum,
                                absl::Span<const absl::string_view> pieces) {
  if (!status_.ok()) return status_;
  absl::Status status = CheckSegment(index, pieces);
  if (status.ok()) status = AppendChecked(checksum, pieces);
  return status.ok() ? status : Finish(std::move(status));
}

absl::Status BlobUpload::CheckSegment(int64_t index,
                                      absl::Span<const absl::string_view> pieces) const {
  const auto next = static_cast<int64_t>(checksums_.size());
  if (index != next || next >= NumSegments(info_.bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(name_), ": segment ", index,
                                                   " came where segment ", next, " of ",
                                                   NumSegments(info_.bytes), " was expected"));
  }
  const int64_t bytes = TotalBytes(pieces);
  if (bytes != SegmentBytes(info_.bytes, index)) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(name_), ": segment ", index, " has ",
                                                   bytes, " bytes instead of ",
                                                   SegmentBytes(info_.bytes, index)));
  }
  return absl::OkStatus();
}

absl::Status BlobUpload::AppendChecked(uint64_t checksum,
                                       absl::Span<const absl::string_view> pieces) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<StagedBlob> staged, store_->TakeStaged(this));
  const absl::StatusOr<uint64_t> taken = staged->Append(pieces);
  WEFT_RETURN_IF_ERROR(store_->RecordWrite(Annotate(taken.status(), ToString(name_))));
  if (*taken != checksum) {
    return Damaged(name_, absl::StrCat("checksum mismatch in segment ", checksums_.size()));
  }
  WEFT_RETURN_IF_ERROR(store_->GiveBackStaged(this, std::move(staged)));
  checksums_.push_back(checksum);
  return absl::OkStatus();
}

absl::Status BlobUpload::Publish() {
  if (!status_.ok()) return status_;
  absl::Status status = PublishChecked();
  if (!status.ok()) return Finish(std::move(status));
  store_->EndUpload(this);
  status_ = absl::FailedPreconditionError(absl::StrCat(ToString(name_), ": is published already"));
  return status;
}

absl::Status BlobUpload::PublishChecked() {
  const auto segments = static_cast<int64_t>(checksums_.size());
  if (segments != NumSegments(info_.bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(ToString(name_), ": ", segments, " segments of ",
                                                   NumSegments(info_.bytes), " came"));
  }
  if (BlobChecksum(info_.bytes, checksums_) != info_.checksum) {
    return Damaged(name_, "checksum mismatch of the whole");
  }
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StagedBlob> staged, store_->TakeStaged(this));
  WEFT_RETURN_IF_ERROR(store_->RecordWrite(Annotate(staged->Seal(checksums_), ToString(name_))));
  return store_->PublishSealed(this, staged.get());
}

// --- BlobReader ---

absl::StatusOr<SegmentBuffer> BlobReader::Read(int64_t segment) const {
  WEFT_CHECK(segment >= 0 && segment < num_segments());
  absl::StatusOr<SegmentBuffer> buffer = blob_->Read(segment);
  if (!buffer.ok()) return store_->ReadFailed(blob_.get(), buffer.status());
  if (static_cast<int64_t>(buffer->bytes.size()) != SegmentBytes(info().bytes, segment)) {
    return store_->ReadFailed(
        blob_.get(), absl::DataLossError(absl::StrCat("segment ", segment, " is cut short")));
  }
  return buffer;
}

absl::StatusOr<SegmentBuffer> BlobReader::ReadChecked(int64_t segment) const {
  WEFT_ASSIGN_OR_RETURN(SegmentBuffer buffer, Read(segment));
  if (SegmentChecksum({buffer.bytes}) == checksum(segment)) return buffer;
  return store_->ReadFailed(
      blob_.get(), absl::DataLossError(absl::StrCat("checksum mismatch in segment ", segment)));
}

absl::Status BlobReader::ReadBytes(int64_t offset, absl::Span<char> out) {
  const auto bytes = static_cast<int64_t>(out.size());
  WEFT_CHECK(offset >= 0 && bytes <= info().bytes && offset <= info().bytes - bytes);
  for (int64_t done = 0; done < bytes;) {
    const int64_t segment = (offset + done) / kSegmentBytes;
    const int64_t begin = (offset + done) % kSegmentBytes;
    const int64_t count = std::min(bytes - done, SegmentBytes(info().bytes, segment) - begin);
    if (segment != segment_) {
      segment_ = -1;
      WEFT_ASSIGN_OR_RETURN(buffer_, ReadChecked(segment));
      segment_ = segment;
    }
    std::memcpy(out.data() + done, buffer_.bytes.data() + begin, static_cast<size_t>(count));
    done += count;
  }
  return absl::OkStatus();
}

// --- BlobStore ---

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(std::unique_ptr<BlobStorage> storage,
                                                           const Options& options) {
  std::unique_ptr<BlobStore> store(new BlobStore(std::move(storage), options));
  WEFT_ASSIGN_OR_RETURN(std::vector<RecoveredBlob> blobs, store->storage_->Recover());
  MutexLock lock(&store->mu_);
  for (RecoveredBlob& recovered : blobs) {
    const ShardName name = recovered.blob->name;
    store->blobs_.try_emplace(name, Entry{std::move(recovered.blob), recovered.damaged});
  }
  return store;
}

absl::StatusOr<bool> BlobStore::HasSame(const ShardName& name, const BlobInfo& info) const {
  const auto found = blobs_.find(name);
  if (found == blobs_.end() || found->second.damaged) return false;
  if (found->second.blob->info == info) return true;
  return absl::AlreadyExistsError(absl::StrCat(
      ToString(name), ": exists with another content (", found->second.blob->info.bytes,
      " bytes, checksum ", absl::Hex(found->second.blob->info.checksum, absl::kZeroPad16),
      "; new: ", info.bytes, " bytes, ", absl::Hex(info.checksum, absl::kZeroPad16), ")"));
}

absl::StatusOr<std::unique_ptr<BlobUpload>> BlobStore::BeginUpload(const ShardName& name,
                                                                   const BlobInfo& info) {
  if (info.bytes < 0 || info.bytes > kMaxBlobBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToString(name), ": a blob of ", info.bytes, " bytes"));
  }
  const int64_t free = FreeBytes();
  {
    MutexLock lock(&mu_);
    WEFT_RETURN_IF_ERROR(write_status_);
    WEFT_RETURN_IF_ERROR(HasSame(name, info).status());
    if (info.bytes > free) {
      return absl::ResourceExhaustedError(
          absl::StrCat(ToString(name), ": ", info.bytes, " bytes do not fit, ", free, " are free"));
    }
  }
  absl::StatusOr<std::unique_ptr<StagedBlob>> staged = storage_->Stage(name, info);
  if (!staged.ok()) return RecordWrite(Annotate(staged.status(), ToString(name)));
  std::unique_ptr<BlobUpload> upload(new BlobUpload(this, name, info, *std::move(staged)));
  MutexLock lock(&mu_);
  uploads_.insert(upload.get());
  upload_bytes_ += info.bytes;
  return upload;
}

absl::StatusOr<std::unique_ptr<StagedBlob>> BlobStore::TakeStaged(BlobUpload* upload) {
  MutexLock lock(&mu_);
  WEFT_RETURN_IF_ERROR(write_status_);
  if (!uploads_.contains(upload)) return Swept(upload->name_);
  return std::move(upload->staged_);
}

absl::Status BlobStore::GiveBackStaged(BlobUpload* upload, std::unique_ptr<StagedBlob> staged) {
  MutexLock lock(&mu_);
  if (!uploads_.contains(upload)) return Swept(upload->name_);
  upload->staged_ = std::move(staged);
  return absl::OkStatus();
}

void BlobStore::EndUpload(BlobUpload* upload) {
  std::unique_ptr<StagedBlob> dropped;  // what it takes away is removed without the lock
  MutexLock lock(&mu_);
  if (uploads_.erase(upload) == 0) return;
  upload_bytes_ -= upload->info_.bytes;
  dropped = std::move(upload->staged_);
}

absl::Status BlobStore::PublishSealed(const BlobUpload* upload, StagedBlob* staged) {
  const ShardName& name = upload->name_;
  MutexLock publish_lock(&publish_mu_);
  bool replaces_damaged = false;
  {
    MutexLock lock(&mu_);
    WEFT_RETURN_IF_ERROR(write_status_);
    if (!uploads_.contains(upload)) return Swept(name);
    WEFT_ASSIGN_OR_RETURN(const bool same, HasSame(name, upload->info_));
    if (same) return absl::OkStatus();
    replaces_damaged = blobs_.erase(name) > 0;
  }
  if (replaces_damaged) WEFT_RETURN_IF_ERROR(RecordWrite(storage_->Remove({name})));
  absl::StatusOr<std::shared_ptr<const StoredBlob>> blob = staged->Publish();
  MutexLock lock(&mu_);
  if (!blob.ok()) {
    // Whatever the cause, full or broken: what is on the disk is not known.
    write_status_ = absl::InternalError(
        absl::StrCat("an earlier write failed: ", ToString(name), ": ", blob.status().message()));
    return Annotate(blob.status(), ToString(name));
  }
  blobs_[name] = Entry{*std::move(blob), false};
  return absl::OkStatus();
}

absl::StatusOr<BlobStore::Entry> BlobStore::Find(const ShardName& name) const {
  MutexLock lock(&mu_);
  const auto found = blobs_.find(name);
  if (found == blobs_.end()) return NotHere(name);
  if (found->second.damaged) return Damaged(name, "is damaged");
  return found->second;
}

absl::StatusOr<BlobReader> BlobStore::OpenReader(const ShardName& name) {
  WEFT_ASSIGN_OR_RETURN(Entry entry, Find(name));
  return BlobReader(this, std::move(entry.blob));
}

absl::StatusOr<BlobInfo> BlobStore::Stat(const ShardName& name) const {
  WEFT_ASSIGN_OR_RETURN(const Entry entry, Find(name));
  return entry.blob->info;
}

absl::StatusOr<BlobInfo> BlobStore::Verify(const ShardName& name) {
  WEFT_ASSIGN_OR_RETURN(const BlobReader reader, OpenReader(name));
  for (int64_t i = 0; i < reader.num_segments(); ++i) {
    WEFT_RETURN_IF_ERROR(reader.ReadChecked(i).status());
  }
  return reader.info();
}

std::vector<BlobEntry> BlobStore::List() const {
  std::vector<BlobEntry> list;
  {
    MutexLock lock(&mu_);
    list.reserve(blobs_.size());
    for (const auto& [name, entry] : blobs_) {
      list.push_back({name, entry.blob->info, entry.damaged});
    }
  }
  std::ranges::sort(list, {}, &BlobEntry::name);
  return list;
}

absl::StatusOr<SweepResult> BlobStore::Sweep(Token high_water,
                                             absl::Span<const PartitionVersion> keep,
                                             absl::Span<const Token> keep_tokens) {
  const absl::flat_hash_set<PartitionVersion> kept(keep.begin(), keep.end());
  const absl::flat_hash_set<Token> kept_tokens(keep_tokens.begin(), keep_tokens.end());
  const auto garbage = [&](const PartitionVersion& version) {
    return version.token <= high_water && !kept.contains(version) &&
           !kept_tokens.contains(version.token);
  };
  SweepResult result;
  std::vector<ShardName> names;
  std::vector<std::unique_ptr<StagedBlob>> dropped;  // destroyed without the locks
  MutexLock publish_lock(&publish_mu_);
  {
    MutexLock lock(&mu_);
    for (const auto& [name, entry] : blobs_) {
      if (!garbage(name.version)) continue;
      names.push_back(name);
      result.bytes += entry.blob->info.bytes;
    }
    std::vector<BlobUpload*> ended;
    for (BlobUpload* upload : uploads_) {
      if (garbage(upload->name_.version)) ended.push_back(upload);
    }
    for (BlobUpload* upload : ended) {
      dropped.push_back(std::move(upload->staged_));
      upload_bytes_ -= upload->info_.bytes;
      uploads_.erase(upload);
    }
    result.blobs = static_cast<int64_t>(names.size());
    result.uploads = static_cast<int64_t>(ended.size());
    if (!names.empty()) WEFT_RETURN_IF_ERROR(write_status_);
    for (const ShardName& name : names) blobs_.erase(name);
  }
  if (!names.empty()) WEFT_RETURN_IF_ERROR(RecordWrite(storage_->Remove(names)));
  return result;
}

int64_t BlobStore::FreeBytes() const {
  const int64_t free = storage_->FreeBytes() - options_.reserve_bytes;
  MutexLock lock(&mu_);
  return std::max(int64_t{0}, free - upload_bytes_);
}

BlobStoreStats BlobStore::stats() const {
  MutexLock lock(&mu_);
  BlobStoreStats stats;
  stats.blobs = static_cast<int64_t>(blobs_.size());
  for (const auto& [name, entry] : blobs_) {
    stats.bytes += entry.blob->info.bytes;
    if (!entry.damaged) continue;
    ++stats.damaged;
    stats.damaged_bytes += entry.blob->info.bytes;
  }
  stats.uploads = static_cast<int64_t>(uploads_.size());
  stats.upload_bytes = upload_bytes_;
  return stats;
}

absl::Status BlobStore::write_status() const {
  MutexLock lock(&mu_);
  return write_status_;
}

absl::Status BlobStore::RecordWrite(const absl::Status& status) {
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  MutexLock lock(&mu_);
  if (write_status_.ok()) {
    write_status_ =
        absl::InternalError(absl::StrCat("an earlier write failed: ", status.message()));
  }
  return status;
}

absl::Status BlobStore::ReadFailed(const StoredBlob* blob, const absl::Status& status) {
  if (!absl::IsDataLoss(status) && !absl::IsNotFound(status)) {
    return Annotate(status, ToString(blob->name));
  }
  MutexLock lock(&mu_);
  const auto found = blobs_.find(blob->name);
  if (found == blobs_.end() || found->second.blob.get() != blob) return NotHere(blob->name);
  found->second.damaged = true;
  return Damaged(blob->name, status.message());
}

absl::Status CopyBlob(const BlobReader& reader, const ShardName& name, BlobStore* to) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<BlobUpload> upload,
                        to->BeginUpload(name, reader.info()));
  for (int64_t i = 0; i < reader.num_segments(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const SegmentBuffer segment, reader.Read(i));
    WEFT_RETURN_IF_ERROR(upload->Append(i, reader.checksum(i), {segment.bytes}));
  }
  return upload->Publish();
}

}  // namespace weft
