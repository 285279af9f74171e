// A JSON document as it was written: members in order, repeated keys kept, with line numbers, so
// that what is wrong with it can be said in full. For documents of megabytes, not for data.
//
// Strict: RFC 8259 in UTF-8; no comments, no byte-order mark, no trailing commas, no NaN. Limits:
// kMaxJsonBytes and kMaxJsonDepth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

inline constexpr size_t kMaxJsonBytes = size_t{64} << 20;
inline constexpr int kMaxJsonDepth = 32;

struct JsonMember;

struct JsonNode {
  enum class Kind { kNull, kBool, kInteger, kDecimal, kString, kArray, kObject };

  Kind kind = Kind::kNull;
  bool boolean = false;
  // A string's value; a number's digits (kInteger: no fraction, no exponent; any size).
  std::string text;
  std::vector<JsonNode> elements;
  std::vector<JsonMember> members;
  // > 0: the line where it was written, of its key if it has one. < 0: what an override number
  // -line (from 1) wrote. 0: neither.
  int line = 0;

  static JsonNode Boolean(bool value);
  static JsonNode Integer(int64_t value);
  static JsonNode Integer(uint64_t value);
  static JsonNode Decimal(double value);
  static JsonNode String(absl::string_view text);
  static JsonNode Array();
  static JsonNode Array(std::vector<JsonNode> elements);
  static JsonNode Object();
  static JsonNode Object(std::vector<JsonMember> members);

  bool is(Kind k) const { return kind == k; }
  // The first member of that key; null without one.
  const JsonNode* Find(absl::string_view key) const;
  JsonNode* Find(absl::string_view key);
};

struct JsonMember {
  std::string key;
  JsonNode value;
};

// `origin` begins the error message: "run.json:3:14: not valid JSON: ...".
// Errors: InvalidArgument.
absl::StatusOr<JsonNode> ParseJson(absl::string_view text, absl::string_view origin);

// Indented by two spaces, ends with a newline.
std::string WriteJson(const JsonNode& node);

// How a message shows a value: 7, true, the string "abc", null, a list, an object.
std::string DescribeJson(const JsonNode& node);

// The beginning of a long text, whole characters only, and "...".
std::string Shortened(absl::string_view text);

// A double as JSON writes it, told from an integer by its point: 2.0, 0.001, 1e-09.
std::string JsonNumber(double value);

}  // namespace weft
