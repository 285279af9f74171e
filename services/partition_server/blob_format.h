// What a blob is made of: a name, a number of bytes, a checksum; cut in segments.
//
// A blob is one *shard* of a version: consecutive rows of a partition. Stores do not look inside.
// Segments are the messages of a transfer and the values of a store; all but the last have
// kSegmentBytes. The checksum of a blob is that of its segments' checksums, so that every byte is
// hashed once at each end, and segments can be hashed by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"

namespace weft {

// A message of this size and its header stay below gRPC's limit of 4 MiB. Part of the format.
inline constexpr int64_t kSegmentBytes = (int64_t{4} << 20) - (int64_t{4} << 10);
// What a length field may say at most.
inline constexpr int64_t kMaxBlobBytes = int64_t{1} << 40;

struct BlobInfo {
  int64_t bytes = 0;
  uint64_t checksum = 0;  // BlobChecksum

  bool operator==(const BlobInfo&) const = default;
};

// "partition 3 of entity type 0, token 1:7" (term 1, the 7th of it); with ", shard 2" behind it.
std::string ToString(const PartitionVersion& version);
std::string ToString(const ShardName& name);

int64_t NumSegments(int64_t blob_bytes);
// Of segment `index`, which is in [0, NumSegments).
int64_t SegmentBytes(int64_t blob_bytes, int64_t index);

// XXH3-64 with seed 0 of the pieces, one after the other.
uint64_t SegmentChecksum(absl::Span<const absl::string_view> pieces);
// The checksum of a segment that is copied piece by piece: of what was written, while it is in the
// cache. Not thread-safe.
class CopyingChecksum {
 public:
  CopyingChecksum();
  ~CopyingChecksum();

  void Copy(const char* from, size_t bytes, char* to);
  uint64_t Get() const;

 private:
  static constexpr size_t kBlock = 16 << 10;
  struct State;
  const std::unique_ptr<State> state_;
};

// XXH3-64, seeded with the blob's length, of the segments' checksums as little-endian words.
uint64_t BlobChecksum(int64_t blob_bytes, absl::Span<const uint64_t> segment_checksums);

}  // namespace weft
