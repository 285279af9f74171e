#include "services/common/file_util.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status SyncPath(const std::string& path, int flags) {
  Fd fd(open(path.c_str(), flags | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("cannot sync ", path));
  return absl::OkStatus();
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

absl::Status ErrnoStatus(int error, std::string_view what) {
  const std::string message = absl::StrCat(std::string(what), ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(message);
    case EFBIG:
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  // Not through an array on the stack: the threads that serve metrics have 100 KB of it.
  std::string contents(4096, '\0');
  size_t size = 0;
  while (true) {
    if (size == contents.size()) contents.resize(2 * size);
    const ssize_t n = read(fd.get(), contents.data() + size, contents.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot read ", path));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  contents.resize(size);
  return contents;
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  const std::string aside = absl::StrCat(path, ".tmp.", getpid());
  {
    Fd fd(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", aside));
    while (!contents.empty()) {
      const ssize_t n = write(fd.get(), contents.data(), contents.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const absl::Status status = ErrnoStatus(errno, absl::StrCat("cannot write ", aside));
        unlink(aside.c_str());
        return status;
      }
      contents.remove_prefix(static_cast<size_t>(n));
    }
    if (fsync(fd.get()) != 0) {
      const absl::Status status = ErrnoStatus(errno, absl::StrCat("cannot sync ", aside));
      unlink(aside.c_str());
      return status;
    }
  }
  absl::Status renamed = RenameDurably(aside, path);
  if (!renamed.ok()) unlink(aside.c_str());
  return renamed;
}

absl::Status SyncFile(const std::string& path) { return SyncPath(path, O_RDONLY); }

absl::Status SyncDirectory(const std::string& path) {
  return SyncPath(path, O_RDONLY | O_DIRECTORY);
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot rename ", from, " to ", to));
  }
  return SyncDirectory(ParentOf(to));
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot create folder ", path));
  return absl::OkStatus();
}

absl::Status RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot list ", folder));
  std::vector<std::string> leftovers;
  for (const auto& entry : entries) {
    const std::string name = entry.path().filename().string();
    const size_t tmp = name.rfind(".tmp.");
    const bool pid = tmp != std::string::npos && tmp + 5 < name.size() &&
                     name.find_first_not_of("0123456789", tmp + 5) == std::string::npos;
    if (pid) leftovers.push_back(entry.path().string());
  }
  for (const std::string& path : leftovers) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) {
      return ErrnoStatus(errno, absl::StrCat("cannot remove ", path));
    }
  }
  return absl::OkStatus();
}

absl::Status LinkFile(const std::string& from, const std::string& to) {
  const std::string aside = absl::StrCat(to, ".tmp.", getpid());
  unlink(aside.c_str());
  // Of a link, what it leads to: a relative one would lead elsewhere from another folder.
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, aside.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (errno == ENOENT) return ErrnoStatus(errno, absl::StrCat("cannot link ", from));
    std::error_code error;
    std::filesystem::copy_file(from, aside, error);
    absl::Status status =
        error ? ErrnoStatus(error.value(), absl::StrCat("cannot copy ", from, " to ", aside))
              : SyncFile(aside);
    if (!status.ok()) {
      unlink(aside.c_str());
      return status;
    }
  }
  // Renaming one name of a file to another name of it does nothing and leaves both.
  const bool renamed = rename(aside.c_str(), to.c_str()) == 0;
  const int error = errno;
  unlink(aside.c_str());
  if (!renamed) return ErrnoStatus(error, absl::StrCat("cannot rename ", aside, " to ", to));
  return absl::OkStatus();
}

}  // namespace weft
