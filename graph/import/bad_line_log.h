// BadLineLog keeps account of lines that cannot be used: each goes into a file of rejected lines
// beside the edges of its input, and when there are more than allowed the import ends with an error
// that shows the first of them.
//
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "graph/import/line_parser.h"

namespace weft {

inline constexpr char kRejectedLinesFile[] = "weft_rejected_lines.txt";

class BadLineLog {
 public:
  // Lines of input i are written to folders[i]. A file is made when it is needed.
  BadLineLog(std::vector<std::string> inputs, std::vector<std::string> folders,
             int64_t max_bad_lines);
  ~BadLineLog();

  // `first_line`: the number of the block's first line, counted from 1.
  // Errors: InvalidArgument when there are now too many, naming `file:line: reason: "text"`.
  absl::Status Add(int input, int64_t first_line, const std::vector<BadLine>& bad);

  // After the last Add: the files are complete and durable.
  absl::Status Finish();

  int64_t count(int input) const { return files_[input].count; }
  int64_t total() const { return total_; }

 private:
  struct File {
    std::string input;
    std::string path;
    int64_t count = 0;
    int fd = -1;
    std::string buffer;
  };

  absl::Status Write(File* file, const std::string& line);
  absl::Status Flush(File* file);
  absl::Status TooMany() const;

  const int64_t max_bad_lines_;
  std::vector<File> files_;
  std::vector<std::string> shown_;  // the first few, whole
  int64_t total_ = 0;
};

}  // namespace weft
