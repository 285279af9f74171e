#include "services/common/rpc/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft {

absl::Status MemoryFile::Replace(absl::string_view contents) {
  const int fd = memfd_create("weft", MFD_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, "cannot make a file in memory");
  while (!contents.empty()) {
    const ssize_t n = write(fd, contents.data(), contents.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const absl::Status status = ErrnoStatus(errno, "cannot write a file in memory");
      close(fd);
      return status;
    }
    contents.remove_prefix(static_cast<size_t>(n));
  }
  if (fd_ < 0) {
    fd_ = fd;
    return absl::OkStatus();
  }
  // The same number, and so the same path.
  const int renamed = dup3(fd, fd_, O_CLOEXEC);
  const absl::Status status =
      renamed < 0 ? ErrnoStatus(errno, "cannot replace a file in memory") : absl::OkStatus();
  close(fd);
  return status;
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

}  // namespace weft
