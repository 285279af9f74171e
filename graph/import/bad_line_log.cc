#include "graph/import/bad_line_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/import/byte_source.h"
#include "graph/import/utf8.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr size_t kShownLines = 10;
constexpr size_t kShownBytes = 120;
constexpr size_t kBufferBytes = size_t{1} << 16;

// As it is where it is text, escaped where it is not.
std::string Escaped(const std::string& text) {
  return FindInvalidUtf8(text) == kWholeText ? absl::Utf8SafeCHexEscape(text)
                                             : absl::CHexEscape(text);
}

std::string Describe(int64_t line, const BadLine& bad, size_t max_bytes) {
  const std::string text(bad.text.substr(0, max_bytes));
  std::string message = absl::StrCat(line, ": ", bad.reason, ": \"", Escaped(text), "\"");
  if (text.size() < bad.text.size()) absl::StrAppend(&message, "...");
  if (line == 1 && bad.maybe_header) {
    absl::StrAppend(&message, " (if line 1 holds the names of the columns: --skip-header)");
  }
  return message;
}

}  // namespace

BadLineLog::BadLineLog(std::vector<std::string> inputs, std::vector<std::string> folders,
                       int64_t max_bad_lines)
    : max_bad_lines_(max_bad_lines) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    File& file = files_.emplace_back();
    file.input = InputName(inputs[i]);
    file.path = absl::StrCat(folders[i], "/", kRejectedLinesFile);
  }
}

BadLineLog::~BadLineLog() {
  for (File& file : files_) {
    if (file.fd >= 0) close(file.fd);
  }
}

absl::Status BadLineLog::Add(int input, int64_t first_line, const std::vector<BadLine>& bad) {
  File& file = files_[input];
  for (const BadLine& line : bad) {
    const int64_t number = first_line + line.line;
    ++file.count;
    ++total_;
    if (shown_.size() < kShownLines) {
      shown_.push_back(absl::StrCat(file.input, ":", Describe(number, line, kShownBytes)));
    }
    if (total_ <= max_bad_lines_) {
      WEFT_RETURN_IF_ERROR(Write(&file, Describe(number, line, line.text.size())));
    }
  }
  return total_ > max_bad_lines_ ? TooMany() : absl::OkStatus();
}

absl::Status BadLineLog::TooMany() const {
  if (total_ == 1) return absl::InvalidArgumentError(shown_[0]);
  std::string message;
  if (max_bad_lines_ > 0) {
    message = absl::StrCat("more than ", max_bad_lines_, " bad lines (--max-bad-lines ",
                           max_bad_lines_, "); the first of them:\n");
  }
  absl::StrAppend(&message, absl::StrJoin(shown_, "\n"));
  if (static_cast<size_t>(total_) > shown_.size()) absl::StrAppend(&message, "\n...");
  return absl::InvalidArgumentError(message);
}

absl::Status BadLineLog::Write(File* file, const std::string& line) {
  if (file->fd < 0) {
    file->fd = open(file->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file->fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", file->path));
  }
  absl::StrAppend(&file->buffer, line, "\n");
  return file->buffer.size() < kBufferBytes ? absl::OkStatus() : Flush(file);
}

absl::Status BadLineLog::Flush(File* file) {
  std::string_view left = file->buffer;
  while (!left.empty()) {
    const ssize_t n = write(file->fd, left.data(), left.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", file->path));
    left.remove_prefix(static_cast<size_t>(n));
  }
  file->buffer.clear();
  return absl::OkStatus();
}

absl::Status BadLineLog::Finish() {
  for (File& file : files_) {
    if (file.fd < 0) continue;
    WEFT_RETURN_IF_ERROR(Flush(&file));
    if (fsync(file.fd) != 0) return ErrnoStatus(errno, absl::StrCat("cannot sync ", file.path));
    close(std::exchange(file.fd, -1));
  }
  return absl::OkStatus();
}

}  // namespace weft
