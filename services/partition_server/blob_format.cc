#include "services/partition_server/blob_format.h"

#define XXH_STATIC_LINKING_ONLY  // the state on the stack
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // the widest vectors that this CPU has
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"

namespace weft {

static_assert(std::endian::native == std::endian::little);

std::string ToString(const PartitionVersion& version) {
  return absl::StrCat("partition ", version.key.partition, " of entity type ",
                      version.key.entity_type, ", token ", version.token >> 40, ":",
                      version.token & ((Token{1} << 40) - 1));
}

std::string ToString(const ShardName& name) {
  return absl::StrCat(ToString(name.version), ", shard ", name.shard);
}

int64_t NumSegments(int64_t blob_bytes) {
  return blob_bytes / kSegmentBytes + (blob_bytes % kSegmentBytes != 0 ? 1 : 0);
}

int64_t SegmentBytes(int64_t blob_bytes, int64_t index) {
  WEFT_CHECK(index >= 0 && index < NumSegments(blob_bytes));
  return std::min(kSegmentBytes, blob_bytes - index * kSegmentBytes);
}

uint64_t SegmentChecksum(absl::Span<const absl::string_view> pieces) {
  if (pieces.size() == 1) return XXH3_64bits(pieces[0].data(), pieces[0].size());
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const absl::string_view piece : pieces) {
    XXH3_64bits_update(&state, piece.data(), piece.size());
  }
  return XXH3_64bits_digest(&state);
}

struct CopyingChecksum::State {
  XXH3_state_t hash;
};

CopyingChecksum::CopyingChecksum() : state_(new State) { XXH3_64bits_reset(&state_->hash); }
CopyingChecksum::~CopyingChecksum() = default;

void CopyingChecksum::Copy(const char* from, size_t bytes, char* to) {
  while (bytes > 0) {
    const size_t block = std::min(bytes, kBlock);
    std::memcpy(to, from, block);
    XXH3_64bits_update(&state_->hash, to, block);
    from += block;
    to += block;
    bytes -= block;
  }
}

uint64_t CopyingChecksum::Get() const { return XXH3_64bits_digest(&state_->hash); }

uint64_t BlobChecksum(int64_t blob_bytes, absl::Span<const uint64_t> segment_checksums) {
  return XXH3_64bits_withSeed(segment_checksums.data(), segment_checksums.size() * sizeof(uint64_t),
                              static_cast<uint64_t>(blob_bytes));
}

}  // namespace weft
