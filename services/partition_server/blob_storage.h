// BlobStorage is where a BlobStore keeps the bytes: the port that memory and RocksDB implement.
//
// The BlobStore decides what is written, in which order, and what is visible; a storage does as it
// is told. It checks nothing that the BlobStore has checked.
// Errors of all methods: ResourceExhausted (full; nothing has changed), DataLoss (damaged),
// NotFound (removed meanwhile), else Internal. Thread-safety: Stage, FreeBytes and all methods of
// different blobs may be called from any thread; Publish and Remove one at a time; a StagedBlob
// belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/metrics.h"
#include "services/partition_server/blob_format.h"

namespace weft {

// Bytes that stay as they are as long as `owner` lives.
struct SegmentBuffer {
  absl::string_view bytes;
  std::shared_ptr<const void> owner;
};

// A published blob. Immutable; may outlive its removal, but not the storage.
class StoredBlob {
 public:
  StoredBlob(ShardName name, BlobInfo info, std::vector<uint64_t> checksums)
      : name(name), info(info), checksums(std::move(checksums)) {}
  virtual ~StoredBlob() = default;

  // Errors: DataLoss when the medium itself notices that the bytes are damaged; whoever must be
  // sure compares `checksums`.
  virtual absl::StatusOr<SegmentBuffer> Read(int64_t segment) const = 0;

  const ShardName name;
  const BlobInfo info;
  const std::vector<uint64_t> checksums;  // one a segment
};

// A blob that is being written. Destroyed unpublished, it leaves nothing behind.
class StagedBlob {
 public:
  virtual ~StagedBlob() = default;

  // The bytes of the next segment. Gives their checksum, of what was taken: the caller drops the
  // whole when it is not the one expected.
  virtual absl::StatusOr<uint64_t> Append(absl::Span<const absl::string_view> pieces) = 0;
  // All segments are there: what takes time before they can be published (syncing) is done here.
  virtual absl::Status Seal(absl::Span<const uint64_t> checksums) = 0;
  // One synced write: afterwards the blob is there, whole, also after a crash if the storage is
  // durable. No blob has this name.
  virtual absl::StatusOr<std::shared_ptr<const StoredBlob>> Publish() = 0;
};

struct RecoveredBlob {
  std::shared_ptr<const StoredBlob> blob;
  bool damaged = false;  // its length and checksums are not known; it can only be removed
};

class BlobStorage {
 public:
  virtual ~BlobStorage() = default;

  // What was published when the storage was opened. Called once, first.
  virtual absl::StatusOr<std::vector<RecoveredBlob>> Recover() = 0;
  virtual absl::StatusOr<std::unique_ptr<StagedBlob>> Stage(const ShardName& name,
                                                            const BlobInfo& info) = 0;
  // Durable when it returns; names that are not there are fine.
  virtual absl::Status Remove(absl::Span<const ShardName> names) = 0;

  // A published blob survives the process and the machine being killed.
  virtual bool durable() const = 0;
  // What may still be written, about.
  virtual int64_t FreeBytes() const = 0;
  // What the storage says of its own health. Thread-safety: any thread.
  virtual void WriteMetrics(MetricsPage* page) const {}
};

}  // namespace weft
