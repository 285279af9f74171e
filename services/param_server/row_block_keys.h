// What RowBlockStore keeps in its PushLog:
//
//   "c" pass number        a piece of the snapshot of a cut (param_snapshot.h); both uint32,
//                          big-endian. There when "p" is, which is written after it
//   "h"                    share: run_id generation server num_servers layout, see layout_codec.h;
//                          written last when contents are installed, removed first
//   "p"                    uint64: the lowest pass whose pushes are accepted
//   "r" tensor row         the row's floats; both numbers uint32, big-endian
//   "s" incarnation        uint64: the last number of a joined session
//   "t"                    uint64: the optimizer's step count
//   "v" incarnation        a session that is over
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "services/param_server/byte_codec.h"

namespace weft {

inline constexpr std::string_view kCutPrefix = "c";
inline constexpr std::string_view kShareKey = "h";
inline constexpr std::string_view kPassKey = "p";
inline constexpr std::string_view kRowPrefix = "r";
inline constexpr std::string_view kSessionPrefix = "s";
inline constexpr std::string_view kStepsKey = "t";
inline constexpr std::string_view kOverPrefix = "v";

// `prefix` and two numbers that sort as their keys do.
inline std::string PairKey(std::string_view prefix, uint32_t a, uint32_t b) {
  std::string key(prefix);
  for (const uint32_t part : {a, b}) {
    for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(part >> shift));
  }
  return key;
}

// False: not such a key.
inline bool ParsePairKey(std::string_view key, uint32_t* a, uint32_t* b) {
  if (key.size() != 9) return false;
  uint32_t parts[2] = {0, 0};
  for (size_t i = 0; i < 8; ++i) {
    parts[i / 4] = (parts[i / 4] << 8) | static_cast<unsigned char>(key[1 + i]);
  }
  *a = parts[0];
  *b = parts[1];
  return true;
}

inline std::string RowKey(uint32_t tensor, int64_t row) {
  return PairKey(kRowPrefix, tensor, static_cast<uint32_t>(row));
}

// The pieces of one cut.
inline std::string CutPrefix(int64_t first_open_pass) {
  return PairKey(kCutPrefix, static_cast<uint32_t>(first_open_pass), 0).substr(0, 5);
}

inline std::string SessionKey(std::string_view prefix, uint64_t incarnation) {
  std::string key(prefix);
  PutNumber(incarnation, &key);
  return key;
}

inline std::string NumberValue(uint64_t value) {
  std::string bytes;
  PutNumber(value, &bytes);
  return bytes;
}

}  // namespace weft
