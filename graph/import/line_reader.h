// LineReader cuts the bytes of one input into blocks of whole lines, for parsing in parallel.
//
// A UTF-8 byte order mark at the beginning is removed. A line longer than `max_line_bytes` is cut
// short and marked; the rest of it is skipped, so memory stays bounded whatever the input.
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "graph/import/byte_source.h"

namespace weft {

// Lines, each ended by '\n' (but for the last line of an input that lacks it).
struct LineBlock {
  std::string_view text() const { return {data.get(), size}; }

  std::unique_ptr<char[]> data;
  size_t size = 0;
  size_t capacity = 0;
  int64_t offset = 0;     // of the first byte in the (decompressed) input
  bool overlong = false;  // the last line is cut short
};

class LineReader {
 public:
  struct Options {
    size_t block_bytes = size_t{1} << 18;
    size_t max_line_bytes = size_t{1} << 20;
  };

  LineReader(std::unique_ptr<ByteSource> source, const Options& options);

  // Fills `block` (and reuses its memory). False at the end of the input.
  absl::StatusOr<bool> Read(LineBlock* block);

  const ByteSource& source() const { return *source_; }

 private:
  absl::Status SkipRestOfLine();
  // Reads behind the first `size` bytes until the block is full or the input ends.
  absl::StatusOr<size_t> Fill(LineBlock* block, size_t size);

  const std::unique_ptr<ByteSource> source_;
  const Options options_;
  // What follows the last whole line of the previous block.
  std::unique_ptr<char[]> carry_;
  size_t carry_size_ = 0;
  size_t carry_capacity_ = 0;
  int64_t offset_ = 0;
  bool started_ = false;
  bool skipping_ = false;  // within an overlong line
  bool ended_ = false;
};

}  // namespace weft
