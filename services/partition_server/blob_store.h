// BlobStore keeps immutable blobs, each a shard of a version, for a partition server.
//
// A blob that Publish has acknowledged is whole and, in a durable store, survives the process and
// the machine being killed. Nothing half-written is ever visible. Each upload is staged on its own:
// two uploads of one name do not mix, the second to finish finds the first. Deletion is by keep
// list only: a store never judges by itself that a blob is old, nor compares tokens of uploads.
//
// A write that fails, other than for want of room before anything was published, ends the store's
// use: what it did is not known. Every later write is refused with the cause; reads go on.
//
// Errors of all calls, naming the blob:
//   NotFound: not here. A statement: a store that can be asked has recovered.
//   DataLoss: damaged. The blob is quarantined: it stays listed, and gives DataLoss, until it is
//     swept or put anew.
//   Internal: the disk failed, or has failed before.
// Thread-safety: may be called from any thread; an upload and a reader by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/common/mutex.h"
#include "services/partition_server/blob_format.h"
#include "services/partition_server/blob_storage.h"

namespace weft {

class BlobStore;

// One upload, staged apart from all others. Destroyed before Publish, it leaves nothing behind.
// After an error every call gives that error. Must not outlive its store.
class BlobUpload {
 public:
  ~BlobUpload();
  BlobUpload(const BlobUpload&) = delete;
  BlobUpload& operator=(const BlobUpload&) = delete;

  // The next segment, in order.
  // Errors: InvalidArgument (out of order, of a wrong size, or more than announced), DataLoss (not
  // of this checksum), ResourceExhausted (no room), Aborted (swept meanwhile).
  absl::Status Append(int64_t index, uint64_t checksum, absl::Span<const absl::string_view> pieces);

  // Makes the blob visible, in one synced write. OK as well when it is already there.
  // Errors: InvalidArgument (segments missing), DataLoss (not the blob's checksum), AlreadyExists
  // (another content has this name and keeps it), ResourceExhausted, Aborted (swept meanwhile).
  absl::Status Publish();

 private:
  friend class BlobStore;
  BlobUpload(BlobStore* store, const ShardName& name, const BlobInfo& info,
             std::unique_ptr<StagedBlob> staged);

  absl::Status CheckSegment(int64_t index, absl::Span<const absl::string_view> pieces) const;
  absl::Status AppendChecked(uint64_t checksum, absl::Span<const absl::string_view> pieces);
  absl::Status PublishChecked();
  // Remembers an error and drops what was staged.
  absl::Status Finish(absl::Status status);

  BlobStore* const store_;
  const ShardName name_;
  const BlobInfo info_;
  // Belongs to the store's mutex, for a sweep takes it; a call takes it out while it writes.
  std::unique_ptr<StagedBlob> staged_;
  std::vector<uint64_t> checksums_;
  absl::Status status_;
};

// Reads one blob, as it was when it was opened; a sweep does not disturb what is read from memory.
class BlobReader {
 public:
  const BlobInfo& info() const { return blob_->info; }
  int64_t num_segments() const { return static_cast<int64_t>(blob_->checksums.size()); }
  uint64_t checksum(int64_t segment) const {
    return blob_->checksums[static_cast<size_t>(segment)];
  }

  // The bytes are not compared with their checksum: whoever takes them does so.
  // Errors: also NotFound when the blob was swept meanwhile.
  absl::StatusOr<SegmentBuffer> Read(int64_t segment) const;
  // They are. Errors: DataLoss.
  absl::StatusOr<SegmentBuffer> ReadChecked(int64_t segment) const;
  // Reads `out.size()` bytes from `offset` on, all within the blob, and compares the checksums of
  // their segments.
  absl::Status ReadBytes(int64_t offset, absl::Span<char> out);

 private:
  friend class BlobStore;
  BlobReader(BlobStore* store, std::shared_ptr<const StoredBlob> blob)
      : store_(store), blob_(std::move(blob)) {}

  BlobStore* store_;
  std::shared_ptr<const StoredBlob> blob_;
  // The last one of ReadBytes: rows that are read together often lie together.
  int64_t segment_ = -1;
  SegmentBuffer buffer_;
};

struct BlobEntry {
  ShardName name;
  BlobInfo info;
  bool damaged = false;
};

struct BlobStoreStats {
  int64_t blobs = 0;
  int64_t bytes = 0;
  int64_t uploads = 0;       // being staged
  int64_t upload_bytes = 0;  // announced by them
  int64_t damaged = 0;
  int64_t damaged_bytes = 0;  // as far as known
};

struct SweepResult {
  int64_t blobs = 0;
  int64_t bytes = 0;
  int64_t uploads = 0;  // dropped
};

class BlobStore {
 public:
  struct Options {
    // Room that uploads leave, so that the store can always record what it does.
    int64_t reserve_bytes = int64_t{64} << 20;
  };

  // Recovers what the storage holds.
  static absl::StatusOr<std::unique_ptr<BlobStore>> Open(std::unique_ptr<BlobStorage> storage,
                                                         const Options& options);

  // Errors: InvalidArgument (a length that cannot be), AlreadyExists (another content has this
  // name), ResourceExhausted (no room for it).
  absl::StatusOr<std::unique_ptr<BlobUpload>> BeginUpload(const ShardName& name,
                                                          const BlobInfo& info);
  absl::StatusOr<BlobReader> OpenReader(const ShardName& name);
  absl::StatusOr<BlobInfo> Stat(const ShardName& name) const;
  // Reads the blob and compares every checksum.
  absl::StatusOr<BlobInfo> Verify(const ShardName& name);
  std::vector<BlobEntry> List() const;  // in order of names

  // Deletes every shard of a version with a token <= `high_water` that neither `keep` nor
  // `keep_tokens` names; ends the uploads of such versions.
  absl::StatusOr<SweepResult> Sweep(Token high_water, absl::Span<const PartitionVersion> keep,
                                    absl::Span<const Token> keep_tokens = {});

  bool durable() const { return storage_->durable(); }
  int64_t FreeBytes() const;
  BlobStoreStats stats() const;
  // Of its storage.
  void WriteStorageMetrics(MetricsPage* page) const { storage_->WriteMetrics(page); }
  // The failed write that ended the store's use; OK before.
  absl::Status write_status() const;

 private:
  friend class BlobUpload;
  friend class BlobReader;

  struct Entry {
    std::shared_ptr<const StoredBlob> blob;
    bool damaged = false;
  };

  BlobStore(std::unique_ptr<BlobStorage> storage, const Options& options)
      : options_(options), storage_(std::move(storage)) {}

  // True when this content is there, undamaged; AlreadyExists when another has the name.
  absl::StatusOr<bool> HasSame(const ShardName& name, const BlobInfo& info) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<Entry> Find(const ShardName& name) const ABSL_LOCKS_EXCLUDED(mu_);
  // What the upload has staged, to write to it. Errors: Aborted (swept), those of failed writes.
  absl::StatusOr<std::unique_ptr<StagedBlob>> TakeStaged(BlobUpload* upload)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status GiveBackStaged(BlobUpload* upload, std::unique_ptr<StagedBlob> staged)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status PublishSealed(const BlobUpload* upload, StagedBlob* staged)
      ABSL_LOCKS_EXCLUDED(mu_, publish_mu_);
  void EndUpload(BlobUpload* upload) ABSL_LOCKS_EXCLUDED(mu_);
  // Remembers what a write came to; gives `status`.
  absl::Status RecordWrite(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // What a failed read of `blob` means.
  absl::Status ReadFailed(const StoredBlob* blob, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mu_);

  const Options options_;
  const std::unique_ptr<BlobStorage> storage_;

  // Held while the set of published blobs changes in the storage; before mu_.
  Mutex publish_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable Mutex mu_;
  absl::flat_hash_map<ShardName, Entry> blobs_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<BlobUpload*> uploads_ ABSL_GUARDED_BY(mu_);  // those not swept
  int64_t upload_bytes_ ABSL_GUARDED_BY(mu_) = 0;                  // announced by them
  absl::Status write_status_ ABSL_GUARDED_BY(mu_);
};

// Puts what `reader` reads under `name` into another store, too.
absl::Status CopyBlob(const BlobReader& reader, const ShardName& name, BlobStore* to);

}  // namespace weft
