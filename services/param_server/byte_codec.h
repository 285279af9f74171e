// Little-endian numbers and length-prefixed strings, for what a parameter server stores.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

static_assert(std::endian::native == std::endian::little);

inline void PutNumber(uint64_t value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}
inline void PutString(std::string_view s, std::string* out) {
  PutNumber(s.size(), out);
  out->append(s);
}

// Reads what the above wrote. Errors: DataLoss when there is too little.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  size_t left() const { return rest_.size(); }
  absl::StatusOr<std::string_view> Bytes(uint64_t size) {
    if (size > rest_.size()) return absl::DataLossError("stored bytes are cut short");
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  absl::StatusOr<uint64_t> Number() {
    absl::StatusOr<std::string_view> bytes = Bytes(sizeof(uint64_t));
    if (!bytes.ok()) return bytes.status();
    uint64_t value = 0;
    std::memcpy(&value, bytes->data(), sizeof value);
    return value;
  }
  absl::StatusOr<std::string> String() {
    const absl::StatusOr<uint64_t> size = Number();
    if (!size.ok()) return size.status();
    absl::StatusOr<std::string_view> bytes = Bytes(*size);
    if (!bytes.ok()) return bytes.status();
    return std::string(*bytes);
  }

 private:
  std::string_view rest_;
};

}  // namespace weft
