// The messages of PutBlob and GetBlob as bytes, so that a segment's data is written from, and read
// to, where it lies: protobuf would copy it twice at each end.
//
//   message  := header, as protobuf | segment
//   segment  := 0x12 length ; [0x08 index] ; [0x11 xxh3: 8 bytes] ; 0x1A length ; data
//
// which is protobuf's encoding of `oneof part { header = 1; segment = 2 }` with the fields in
// order. Thread-safety: functions without state.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// What stands before the data of a segment.
std::string EncodeSegmentPrefix(int64_t index, uint64_t checksum, int64_t data_bytes);

struct ParsedSegment {
  int64_t index = 0;
  uint64_t checksum = 0;
  absl::InlinedVector<absl::string_view, 8> data;  // into the pieces that were parsed
};

// The message, in pieces, is a segment and not a header. False for an empty one.
bool IsSegment(absl::Span<const absl::string_view> message);

// Errors: InvalidArgument for whatever is not exactly a segment.
absl::StatusOr<ParsedSegment> ParseSegment(absl::Span<const absl::string_view> message);

}  // namespace weft
