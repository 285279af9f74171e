#include "services/common/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "services/common/file_util.h"

namespace weft {
namespace {

// "200000 100000" -> 2; 0 for no limit ("max 100000", "-1 100000") and for what cannot be read.
double ParseQuota(absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double quota = 0, period = 0;
  if (words.size() < 2 || !absl::SimpleAtod(words[0], &quota) ||
      !absl::SimpleAtod(words[1], &period) || quota <= 0 || period <= 0) {
    return 0;
  }
  return quota / period;
}

// The least quota of `group` ("/a/b") and of the groups above it, below the folder `mount`.
template <typename ReadQuota>
double LeastQuota(const std::string& mount, absl::string_view group, ReadQuota read_quota) {
  double least = 0;
  for (;;) {
    group = absl::StripSuffix(group, "/");
    const double quota = read_quota(absl::StrCat(mount, group));
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
    if (group.empty()) return least;
    group = group.substr(0, group.rfind('/'));
  }
}

int AffinityCores() {
  for (size_t size = 1024; size <= (size_t{1} << 20); size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

double ControlGroupCores(const std::string& root) {
  const absl::StatusOr<std::string> groups = ReadFile(root + "/proc/self/cgroup");
  if (!groups.ok()) return 0;
  double least = 0;
  for (const absl::string_view line : absl::StrSplit(*groups, '\n')) {
    // "0::/group" (version 2) or "4:cpu,cpuacct:/group" (version 1)
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    double quota = 0;
    if (parts[0] == "0" && parts[1].empty()) {
      quota = LeastQuota(root + "/sys/fs/cgroup", parts[2], [](const std::string& folder) {
        return ParseQuota(ReadFile(folder + "/cpu.max").value_or(""));
      });
    } else {
      const std::vector<absl::string_view> controllers = absl::StrSplit(parts[1], ',');
      if (std::find(controllers.begin(), controllers.end(), "cpu") == controllers.end()) continue;
      const std::string mount = absl::StrCat(root, "/sys/fs/cgroup/", parts[1]);
      quota = LeastQuota(mount, parts[2], [](const std::string& folder) {
        return ParseQuota(absl::StrCat(ReadFile(folder + "/cpu.cfs_quota_us").value_or(""), " ",
                                       ReadFile(folder + "/cpu.cfs_period_us").value_or("")));
      });
    }
    if (quota > 0 && (least == 0 || quota < least)) least = quota;
  }
  return least;
}

int AvailableCores() {
  int cores = std::max(1, AffinityCores());
  const double quota = ControlGroupCores("");
  if (quota > 0) cores = std::min(cores, std::max(1, static_cast<int>(std::ceil(quota))));
  return cores;
}

}  // namespace weft
