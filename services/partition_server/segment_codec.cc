#include "services/partition_server/segment_codec.h"

#include <algorithm>
#include <cstring>

namespace weft {
namespace {

constexpr char kSegmentTag = 0x12;   // field 2, length-delimited
constexpr char kIndexTag = 0x08;     // field 1, varint
constexpr char kChecksumTag = 0x11;  // field 2, 64 bits
constexpr char kDataTag = 0x1A;      // field 3, length-delimited
// Tag and length (10), tag and index (11), tag and checksum (9), tag and length (10).
constexpr size_t kMaxPrefixBytes = 48;

void PutVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

bool TakeVarint(absl::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 63 && !in->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    *value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool TakeTag(absl::string_view* in, char tag) {
  if (in->empty() || in->front() != tag) return false;
  in->remove_prefix(1);
  return true;
}

bool TakeFixed64(absl::string_view* in, uint64_t* value) {
  if (in->size() < sizeof *value) return false;
  std::memcpy(value, in->data(), sizeof *value);
  in->remove_prefix(sizeof *value);
  return true;
}

}  // namespace

std::string EncodeSegmentPrefix(int64_t index, uint64_t checksum, int64_t data_bytes) {
  std::string inner;
  inner.push_back(kIndexTag);
  PutVarint(static_cast<uint64_t>(index), &inner);
  inner.push_back(kChecksumTag);
  inner.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);
  inner.push_back(kDataTag);
  PutVarint(static_cast<uint64_t>(data_bytes), &inner);
  std::string prefix;
  prefix.push_back(kSegmentTag);
  PutVarint(inner.size() + static_cast<uint64_t>(data_bytes), &prefix);
  return prefix + inner;
}

bool IsSegment(absl::Span<const absl::string_view> message) {
  for (const absl::string_view piece : message) {
    if (!piece.empty()) return piece.front() == kSegmentTag;
  }
  return false;
}

absl::StatusOr<ParsedSegment> ParseSegment(absl::Span<const absl::string_view> message) {
  const absl::Status malformed = absl::InvalidArgumentError("a message is not a segment");
  // Pieces are cut anywhere: what stands before the data is put together first.
  std::string start;
  size_t total = 0;
  for (const absl::string_view piece : message) {
    total += piece.size();
    const size_t wanted = std::min(piece.size(), kMaxPrefixBytes - start.size());
    start.append(piece.data(), wanted);
  }
  absl::string_view rest = start;
  const auto left = [&] { return total - (start.size() - rest.size()); };
  ParsedSegment segment;
  uint64_t length = 0;
  if (!TakeTag(&rest, kSegmentTag) || !TakeVarint(&rest, &length) || length != left()) {
    return malformed;
  }
  uint64_t index = 0;
  if (TakeTag(&rest, kIndexTag) && (!TakeVarint(&rest, &index) || index > UINT32_MAX)) {
    return malformed;
  }
  if (TakeTag(&rest, kChecksumTag) && !TakeFixed64(&rest, &segment.checksum)) return malformed;
  if (!TakeTag(&rest, kDataTag) || !TakeVarint(&rest, &length) || length != left()) {
    return malformed;
  }
  segment.index = static_cast<int64_t>(index);
  size_t skip = start.size() - rest.size();
  for (absl::string_view piece : message) {
    const size_t skipped = std::min(skip, piece.size());
    piece.remove_prefix(skipped);
    skip -= skipped;
    if (!piece.empty()) segment.data.push_back(piece);
  }
  return segment;
}

}  // namespace weft
