#include "graph/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  std::string aside = absl::StrCat(path, ".tmp.", getpid());
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  return std::unique_ptr<OutputFile>(new OutputFile(path, std::move(aside), fd));
}

OutputFile::OutputFile(std::string path, std::string aside, int fd)
    : path_(std::move(path)), aside_(std::move(aside)), fd_(fd) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!aside_.empty()) unlink(aside_.c_str());
}

absl::Status OutputFile::WriteAll(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Flush(size_t at_least) {
  if (buffer_.size() < at_least) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(WriteAll(buffer_));
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status OutputFile::Write(std::string_view bytes) {
  WEFT_RETURN_IF_ERROR(Flush(0));
  return WriteAll(bytes);
}

absl::Status OutputFile::Finish() {
  WEFT_RETURN_IF_ERROR(Flush(0));
  if (fsync(fd_) != 0) return ErrnoStatus(errno, absl::StrCat("cannot sync ", path_));
  close(std::exchange(fd_, -1));
  WEFT_RETURN_IF_ERROR(RenameDurably(aside_, path_));
  aside_.clear();
  return absl::OkStatus();
}

}  // namespace weft
