#include "services/common/config_problems.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/common/config_json.h"

namespace weft {

void ConfigProblems::Add(std::string key, std::string message, int line) {
  if (full()) return;
  keys_.insert(key);
  list_.push_back({std::move(key), std::move(message), line});
}

bool ConfigProblems::Concern(absl::string_view key) const {
  if (full()) return true;
  while (!key.empty()) {
    if (keys_.contains(key)) return true;
    const size_t end = key.find_last_of(".[");
    if (end == absl::string_view::npos) return false;
    key = key.substr(0, end);
  }
  return false;
}

absl::Status ConfigProblems::ToStatus(absl::string_view origin,
                                      absl::Span<const std::string> overrides) const {
  if (empty()) return absl::OkStatus();
  std::vector<ConfigProblem> sorted = list_;
  // Overrides come last, in their order; what has no line comes first.
  const auto place = [](const ConfigProblem& problem) {
    return problem.line >= 0 ? std::pair(0, problem.line) : std::pair(1, -problem.line);
  };
  std::stable_sort(
      sorted.begin(), sorted.end(),
      [&](const ConfigProblem& a, const ConfigProblem& b) { return place(a) < place(b); });
  std::string text;
  const bool several = sorted.size() > 1;
  if (several) {
    absl::StrAppend(&text, origin, ": ", sorted.size(), full() ? " problems or more" : " problems");
  }
  for (const ConfigProblem& problem : sorted) {
    if (several) text += "\n  ";
    if (problem.line < 0 && static_cast<size_t>(-problem.line) <= overrides.size()) {
      absl::StrAppend(&text, "--set ", Shortened(overrides[-problem.line - 1]), ": ");
    } else if (problem.line > 0) {
      absl::StrAppend(&text, origin, ":", problem.line, ": ");
    } else {
      absl::StrAppend(&text, origin, ": ");
    }
    if (!problem.key.empty()) absl::StrAppend(&text, problem.key, ": ");
    text += problem.message;
  }
  return absl::InvalidArgumentError(text);
}

std::string MemberKey(absl::string_view object, absl::string_view name) {
  const bool plain =
      !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '-' ||
               static_cast<unsigned char>(c) >= 128;
      });
  if (!plain) {
    return absl::StrCat(object, "[\"", absl::Utf8SafeCHexEscape(name.substr(0, 128)), "\"]");
  }
  return object.empty() ? std::string(name) : absl::StrCat(object, ".", name);
}

std::string ElementKey(absl::string_view list, size_t index) {
  return absl::StrCat(list, "[", index, "]");
}

}  // namespace weft
