// What happened: a few words, and fields by name. People read it as `words: name=value ...`,
// machines as a JSON object.
//
//   LogEvent("bucket trained", {{"pass", pass}, {"bucket", Name(bucket)}, {"edges", edges}})
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct LogField {
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string>;

  template <std::integral T>
  LogField(const char* name_of_it, T number) : name(name_of_it) {
    if constexpr (std::is_same_v<T, bool>) {
      value = number;
    } else if constexpr (std::is_signed_v<T>) {
      value = int64_t{number};
    } else {
      value = uint64_t{number};
    }
  }
  LogField(const char* name_of_it, double number) : name(name_of_it), value(number) {}
  LogField(const char* name_of_it, absl::string_view text)
      : name(name_of_it), value(std::string(text)) {}

  const char* name;  // lower_case, a literal; not time, level, program or event
  Value value;
};

struct LogEvent {
  enum class Level : uint8_t { kDebug, kInfo, kWarning, kError };

  explicit LogEvent(absl::string_view words, std::vector<LogField> its_fields = {},
                    Level its_level = Level::kInfo)
      : what(words), fields(std::move(its_fields)), level(its_level) {}

  std::string what;
  std::vector<LogField> fields;
  Level level;
};

// `words: name=value name=value`, as it is for people.
std::string ToText(const LogEvent& event);

}  // namespace weft
