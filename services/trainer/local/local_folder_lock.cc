#include "services/trainer/local/local_folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

std::string StateFolder(const std::string& folder) { return absl::StrCat(folder, "/.weft"); }
std::string LockFile(const std::string& folder) { return absl::StrCat(folder, "/.weft/lock"); }

// Whether `path` is still the file that `fd` is open on.
bool IsFile(const std::string& path, int fd) {
  struct stat by_path;
  struct stat by_fd;
  return stat(path.c_str(), &by_path) == 0 && fstat(fd, &by_fd) == 0 &&
         by_path.st_dev == by_fd.st_dev && by_path.st_ino == by_fd.st_ino;
}

absl::Status Taken(const std::string& folder) {
  const absl::StatusOr<std::string> pid = ReadFile(LockFile(folder));
  const std::string holder =
      pid.ok() ? std::string(absl::StripAsciiWhitespace(*pid)) : std::string();
  return absl::FailedPreconditionError(
      absl::StrCat(folder, ": another weft train ",
                   holder.empty() ? std::string() : absl::StrCat("(process ", holder, ") "),
                   "is training here; wait for it, or choose another checkpoint_path"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalFolderLock>> LocalFolderLock::Acquire(
    const std::string& folder) {
  std::error_code ignored;
  const bool made_folder = !std::filesystem::exists(folder, ignored);
  const bool made_state = !std::filesystem::exists(StateFolder(folder), ignored);
  while (true) {
    WEFT_RETURN_IF_ERROR(MakeDirectories(StateFolder(folder)));
    const int fd = open(LockFile(folder).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ENOENT) continue;  // somebody removes his traces just now
    if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", LockFile(folder)));
    std::unique_ptr<LocalFolderLock> lock(new LocalFolderLock(folder, fd, made_folder, made_state));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return Taken(folder);
      return ErrnoStatus(errno, absl::StrCat("cannot lock ", LockFile(folder)));
    }
    if (!IsFile(LockFile(folder), fd)) continue;  // locked what has been removed meanwhile
    const std::string pid = absl::StrCat(getpid(), "\n");
    if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot write ", LockFile(folder)));
    }
    return lock;
  }
}

LocalFolderLock::~LocalFolderLock() { close(fd_); }

void LocalFolderLock::RemoveTraces() {
  // Removing a folder that is not empty fails, as it should.
  if (!made_state_) return;
  unlink(LockFile(folder_).c_str());
  rmdir(StateFolder(folder_).c_str());
  if (made_folder_) rmdir(folder_.c_str());
}

}  // namespace weft
