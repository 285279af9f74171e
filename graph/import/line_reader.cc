#include "graph/import/line_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// Enough of an overlong line to know it again.
constexpr size_t kKeptOfOverlongLine = 100;

void Reserve(std::unique_ptr<char[]>* data, size_t* capacity, size_t used, size_t wanted) {
  if (*capacity >= wanted) return;
  auto larger = std::make_unique_for_overwrite<char[]>(wanted);
  if (used > 0) std::memcpy(larger.get(), data->get(), used);
  *data = std::move(larger);
  *capacity = wanted;
}

}  // namespace

LineReader::LineReader(std::unique_ptr<ByteSource> source, const Options& options)
    : source_(std::move(source)), options_(options) {}

// Leaves in the carry what follows the end of the line.
absl::Status LineReader::SkipRestOfLine() {
  Reserve(&carry_, &carry_capacity_, 0, options_.block_bytes);
  while (skipping_) {
    WEFT_ASSIGN_OR_RETURN(const size_t n, source_->Read(carry_.get(), options_.block_bytes));
    if (n == 0) {
      ended_ = true;
      skipping_ = false;
      return absl::OkStatus();
    }
    const void* newline = std::memchr(carry_.get(), '\n', n);
    if (newline == nullptr) {
      offset_ += static_cast<int64_t>(n);
      continue;
    }
    const size_t skipped = static_cast<const char*>(newline) - carry_.get() + 1;
    carry_size_ = n - skipped;
    std::memmove(carry_.get(), carry_.get() + skipped, carry_size_);
    offset_ += static_cast<int64_t>(skipped);
    skipping_ = false;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> LineReader::Read(LineBlock* block) {
  if (skipping_) WEFT_RETURN_IF_ERROR(SkipRestOfLine());
  // The first block shows whether there is a byte order mark, however small blocks are.
  Reserve(&block->data, &block->capacity, 0,
          std::max({options_.block_bytes, carry_size_, kByteOrderMark.size()}));
  if (carry_size_ > 0) std::memcpy(block->data.get(), carry_.get(), carry_size_);
  size_t size = std::exchange(carry_size_, 0);
  size_t end = 0;       // of the last whole line
  size_t searched = 0;  // no line ends before; behind a skipped line the carry may hold some
  while (true) {
    WEFT_ASSIGN_OR_RETURN(size, Fill(block, size));
    if (ended_) {
      end = size;
      break;
    }
    const void* newline = memrchr(block->data.get() + searched, '\n', size - searched);
    if (newline != nullptr) {
      end = static_cast<size_t>(static_cast<const char*>(newline) - block->data.get()) + 1;
      break;
    }
    if (size > options_.max_line_bytes) break;
    searched = size;
    Reserve(&block->data, &block->capacity, size, 2 * size);
  }

  block->offset = offset_;
  block->overlong = size - end > options_.max_line_bytes;
  offset_ += static_cast<int64_t>(size);
  if (block->overlong) {
    skipping_ = true;
    block->size = end + std::min(size - end, kKeptOfOverlongLine);
    return true;
  }
  carry_size_ = size - end;
  offset_ -= static_cast<int64_t>(carry_size_);
  Reserve(&carry_, &carry_capacity_, 0, carry_size_);
  if (carry_size_ > 0) std::memcpy(carry_.get(), block->data.get() + end, carry_size_);
  block->size = end;
  return end > 0;
}

absl::StatusOr<size_t> LineReader::Fill(LineBlock* block, size_t size) {
  while (size < block->capacity && !ended_) {
    WEFT_ASSIGN_OR_RETURN(const size_t n,
                          source_->Read(block->data.get() + size, block->capacity - size));
    ended_ = n == 0;
    size += n;
  }
  if (!started_ && std::string_view(block->data.get(), size).starts_with(kByteOrderMark)) {
    size -= kByteOrderMark.size();
    offset_ += static_cast<int64_t>(kByteOrderMark.size());
    std::memmove(block->data.get(), block->data.get() + kByteOrderMark.size(), size);
  }
  started_ = true;
  return size;
}

}  // namespace weft
