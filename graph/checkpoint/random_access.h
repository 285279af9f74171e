// Bytes that are read or written at any position: a data set of a file, or memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// Thread-safety: as the implementation's.
class RandomAccessSource {
 public:
  virtual ~RandomAccessSource() = default;
  virtual int64_t size() const = 0;  // in bytes
  // Fills `out` from `begin`; begin + out.size() <= size().
  virtual absl::Status Read(int64_t begin, std::span<char> out) const = 0;
};

class RandomAccessSink {
 public:
  virtual ~RandomAccessSink() = default;
  virtual absl::Status Write(int64_t begin, std::string_view bytes) = 0;
};

}  // namespace weft
