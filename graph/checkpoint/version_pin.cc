#include "graph/checkpoint/version_pin.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace weft {
namespace {

// 0 or errno.
int Lock(int fd, int operation) {
  while (flock(fd, operation) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

VersionPin::VersionPin(VersionPin&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

VersionPin& VersionPin::operator=(VersionPin&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

VersionPin::~VersionPin() {
  if (fd_ >= 0) close(fd_);
}

std::optional<VersionPin> VersionPin::Share(const std::string& model_path) {
  const int fd = open(model_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  VersionPin pin(fd);
  if (fd < 0) return pin;  // who reads it will say why
  Lock(fd, LOCK_SH);
  // It may have been removed before the lock was there.
  struct stat file = {};
  if (fstat(fd, &file) != 0 || file.st_nlink == 0) return std::nullopt;
  return pin;
}

std::optional<VersionPin> VersionPin::Own(const std::string& model_path, bool* pinned) {
  *pinned = false;
  const int fd = open(model_path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  VersionPin pin(fd);
  const int error = Lock(fd, LOCK_EX | LOCK_NB);
  *pinned = error == EWOULDBLOCK;
  if (error != 0) return std::nullopt;
  return pin;
}

}  // namespace weft
