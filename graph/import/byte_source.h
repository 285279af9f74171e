// ByteSource is the bytes of one input, decompressed: a plain, gzip or zstd file, a pipe, or
// standard input. Which it is shows in its first bytes, not in its name.
//
// Errors: NotFound, PermissionDenied, InvalidArgument (a folder; a format that is not read here, as
// xz), DataLoss (a damaged or truncated compressed file); messages name the input.
// Thread-safety: none; one reader at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace weft {

// "-" as an input means standard input.
inline constexpr char kStandardInput[] = "-";
bool IsStandardInput(const std::string& input);
// What messages call an input.
std::string InputName(const std::string& input);

// Bytes of a regular file as it lies on the disk, and XXH3-64 of them.
struct InputDigest {
  int64_t bytes = 0;
  uint64_t hash = 0;
  bool operator==(const InputDigest&) const = default;
};

class ByteSource {
 public:
  static absl::StatusOr<std::unique_ptr<ByteSource>> Open(const std::string& input);
  virtual ~ByteSource() = default;

  // Fills `out` with up to `capacity` bytes; 0 only at the end.
  virtual absl::StatusOr<size_t> Read(char* out, size_t capacity) = 0;

  // Of the bytes read so far, before decompression.
  virtual InputDigest digest() const = 0;

  // Size before decompression; 0 when it is not known (a pipe).
  virtual int64_t total_bytes() const = 0;
};

// Whether an input can be read again: a regular file.
absl::StatusOr<bool> IsRereadable(const std::string& input);

// Reads a whole file to digest it. `input` must be rereadable.
absl::StatusOr<InputDigest> DigestInput(const std::string& input);

}  // namespace weft
