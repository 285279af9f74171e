#include "services/common/available_memory.h"

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/common/file_util.h"

namespace weft {
namespace {

std::optional<int64_t> ReadNumber(const std::string& path) {
  const auto text = ReadFile(path);
  int64_t number = 0;
  // "max", and a file that is not there, mean no limit.
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &number)) {
    return std::nullopt;
  }
  return number;
}

// The number after `name` on a line of its own: "MemAvailable:  123 kB", "inactive_file 123".
std::optional<int64_t> ReadField(const std::string& path, absl::string_view name) {
  const auto text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" :"), absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() >= 2 && words[0] == name && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return std::nullopt;
}

void Lower(std::optional<int64_t>* least, std::optional<int64_t> bytes) {
  if (bytes.has_value()) *least = std::min(least->value_or(*bytes), std::max<int64_t>(*bytes, 0));
}

// What one control group has left.
std::optional<int64_t> LeftInGroup(const std::string& folder, const char* limit, const char* usage,
                                   absl::string_view stat_prefix) {
  const std::optional<int64_t> max = ReadNumber(absl::StrCat(folder, "/", limit));
  const std::optional<int64_t> used = ReadNumber(absl::StrCat(folder, "/", usage));
  if (!max.has_value() || !used.has_value()) return std::nullopt;
  int64_t files = 0;
  for (const char* list : {"inactive_file", "active_file"}) {
    files += ReadField(folder + "/memory.stat", absl::StrCat(stat_prefix, list)).value_or(0);
  }
  return *max - std::max<int64_t>(0, *used - files);
}

}  // namespace

std::optional<int64_t> AvailableMemory(const std::string& root) {
  std::optional<int64_t> least;
  if (auto kilobytes = ReadField(root + "/proc/meminfo", "MemAvailable")) {
    Lower(&least, *kilobytes * 1024);
  }
  const auto groups = ReadFile(root + "/proc/self/cgroup");
  if (!groups.ok()) return least;
  for (const absl::string_view line : absl::StrSplit(*groups, '\n')) {
    // "0::/group" (version 2) or "4:memory:/group" (version 1)
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool version2 = parts[0] == "0" && parts[1].empty();
    if (!version2 && parts[1] != "memory") continue;
    // The group and those above it, as far as they can be seen from here.
    absl::string_view group = parts[2];
    for (;;) {
      group = absl::StripSuffix(group, "/");
      Lower(&least, version2
                        ? LeftInGroup(absl::StrCat(root, "/sys/fs/cgroup", group), "memory.max",
                                      "memory.current", "")
                        : LeftInGroup(absl::StrCat(root, "/sys/fs/cgroup/memory", group),
                                      "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
      if (group.empty()) break;
      group = group.substr(0, group.rfind('/'));
    }
  }
  return least;
}

}  // namespace weft
