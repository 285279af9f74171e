#include "cli/report_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;

// A name of the system's, as /dev/stdout, whatever that is.
bool IsSystems(const fs::path& path) {
  return absl::StartsWith(path.native(), "/dev/") || absl::StartsWith(path.native(), "/proc/");
}

// Where a link leads, even if nothing is there yet.
fs::path Target(fs::path path) {
  constexpr int kMaxLinks = 40;  // as the kernel
  std::error_code error;
  for (int i = 0; i < kMaxLinks && !IsSystems(path); ++i) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) break;
    const fs::path link = fs::read_symlink(path, error);
    path = path.parent_path() / link;  // an absolute link stands for itself
  }
  return path;
}

// Whether text goes into what is there, instead of replacing it.
bool IsWrittenInto(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::status(target, error);
  return fs::exists(status) && (IsSystems(target) || !fs::is_regular_file(status));
}

fs::path FolderOf(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

std::string ReportPathProblem(const std::string& path) {
  if (path.empty()) return "names no file";
  const fs::path target = Target(path);
  std::error_code error;
  if (fs::is_directory(target, error)) return absl::StrCat(path, ": is a folder");
  if (IsWrittenInto(target)) {
    return access(target.c_str(), W_OK) == 0 ? "" : absl::StrCat(path, ": ", std::strerror(errno));
  }
  // A new file is renamed into the folder.
  const fs::path folder = FolderOf(target);
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::StrCat(path, ": ", folder.string(), ": ", std::strerror(errno));
  }
  return fs::is_directory(folder, error)
             ? ""
             : absl::StrCat(path, ": ", folder.string(), " is no folder");
}

absl::Status WriteReport(const std::string& path, std::string_view text) {
  const std::string target = Target(path).string();
  if (!IsWrittenInto(target)) return WriteFileAtomically(target, text);

  std::cout.flush();  // it may be the same file
  const int fd = open(target.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  absl::Status written;
  while (written.ok() && !text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n > 0) text.remove_prefix(static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) written = ErrnoStatus(errno, absl::StrCat("cannot write ", path));
  }
  close(fd);
  return written;
}

void AddReportOption(CLI::App& command, std::string* path, const std::string& description) {
  command.add_option("--json", *path, description)->type_name("FILE")->check(ReportPathProblem);
}

}  // namespace weft::cli
