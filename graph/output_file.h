// OutputFile is a file that is written from front to back and appears when it is whole: aside,
// fsync, rename. Destroyed before Finish, it leaves nothing.
//
// Not thread-safe. Errors: as services/common/file_util.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

class OutputFile {
 public:
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  // What is to be written is appended here; Flush(kFlushBytes) now and then keeps it small.
  std::string& buffer() { return buffer_; }
  static constexpr size_t kFlushBytes = size_t{1} << 20;
  // Writes the buffer when it has `at_least` bytes.
  absl::Status Flush(size_t at_least = kFlushBytes);
  // Writes the buffer, then `bytes`, past it.
  absl::Status Write(std::string_view bytes);

  absl::Status Finish();

 private:
  OutputFile(std::string path, std::string aside, int fd);
  absl::Status WriteAll(std::string_view bytes);

  const std::string path_;
  std::string aside_;  // empty when nothing is to be removed
  int fd_;
  std::string buffer_;
};

}  // namespace weft
