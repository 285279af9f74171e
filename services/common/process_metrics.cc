#include "services/common/process_metrics.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/available_memory.h"
#include "services/common/file_util.h"

namespace weft {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// The fields of /proc/self/stat behind the program's name, which may hold anything; the first is
// the third of proc(5).
std::vector<std::string> StatFields() {
  const auto text = ReadFile("/proc/self/stat");
  const size_t name_end = text.ok() ? text->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return {};
  return absl::StrSplit(text->substr(name_end + 1), ' ', absl::SkipEmpty());
}

double Field(const std::vector<std::string>& fields, size_t number) {
  double value = 0;
  if (fields.size() + 2 < number || !absl::SimpleAtod(fields[number - 3], &value)) return 0;
  return value;
}

double StartSeconds() {
  const auto text = ReadFile("/proc/stat");
  if (!text.ok()) return 0;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    double boot = 0;
    if (line.substr(0, 6) != "btime " || !absl::SimpleAtod(line.substr(6), &boot)) continue;
    return boot + Field(StatFields(), 22) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return 0;
}

}  // namespace

ProcessMetrics::ProcessMetrics(std::string program, std::string data_dir)
    : program_(std::move(program)),
      data_dir_(std::move(data_dir)),
      start_seconds_(StartSeconds()) {}

void ProcessMetrics::Write(MetricsPage* page) const {
  page->AddGauge("weft_build_info", "Always 1.", {{"program", program_}, {"version", WEFT_VERSION}},
                 1);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  page->AddCounter("process_cpu_seconds_total", "Processor time, of user and system.", {},
                   Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  const std::vector<std::string> stat = StatFields();
  page->AddGauge("process_threads", "Threads.", {}, Field(stat, 20));
  page->AddGauge("process_virtual_memory_bytes", "Address space in use.", {}, Field(stat, 23));
  page->AddGauge("process_resident_memory_bytes", "Memory in use.", {},
                 Field(stat, 24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  page->AddGauge("process_start_time_seconds", "When the process began, since 1970.", {},
                 start_seconds_);
  page->AddGauge("weft_process_time_seconds", "The machine's clock: seconds since 1970.", {},
                 absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  page->AddGauge("process_open_fds", "Open files and sockets.", {},
                 error ? 0 : static_cast<double>(std::distance(begin(files), end(files))));
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  page->AddGauge("process_max_fds", "How many files and sockets may be open.", {},
                 static_cast<double>(limit.rlim_cur));
  page->AddGauge("weft_process_memory_available_bytes",
                 "Memory that can be had without swapping, within the limits of the container.", {},
                 static_cast<double>(AvailableMemory().value_or(0)));
  if (!data_dir_.empty()) WriteDisk(page);
}

void ProcessMetrics::WriteDisk(MetricsPage* page) const {
  struct statvfs disk = {};
  if (statvfs(data_dir_.c_str(), &disk) != 0) disk = {};
  const auto block = static_cast<double>(disk.f_frsize);
  page->AddGauge("weft_disk_size_bytes", "Size of the file system of the data folder.", {},
                 block * static_cast<double>(disk.f_blocks));
  page->AddGauge("weft_disk_free_bytes", "What is free of the data folder's file system.", {},
                 block * static_cast<double>(disk.f_bavail));
}

}  // namespace weft
