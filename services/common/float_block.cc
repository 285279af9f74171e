#include "services/common/float_block.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"

namespace weft {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// Tells its user how much was asked for.
class OutOfMemory : public std::bad_alloc {
 public:
  OutOfMemory(int64_t rows, int64_t cols)
      : text_(absl::StrCat("out of memory: there is no room for ", rows, " x ", cols, " numbers")) {
  }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

}  // namespace

FloatBlock::FloatBlock(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
  WEFT_CHECK(rows >= 0 && cols >= 0);
  const size_t bytes = static_cast<size_t>(size()) * sizeof(float);
  if (bytes == 0) return;
  // One huge page more than needed, so that the block can start at a boundary; the parts before
  // and after it are given back.
  mapped_bytes_ = RoundUp(bytes, bytes >= kHugePage ? kHugePage : 4096);
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* mapped = mmap(nullptr, mapped_bytes_ + slack, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw OutOfMemory(rows, cols);
  char* base = static_cast<char*>(mapped);
  if (slack > 0) {
    char* aligned = reinterpret_cast<char*>(RoundUp(reinterpret_cast<size_t>(base), kHugePage));
    if (aligned != base) munmap(base, static_cast<size_t>(aligned - base));
    char* end = base + mapped_bytes_ + slack;
    if (end != aligned + mapped_bytes_) {
      munmap(aligned + mapped_bytes_, static_cast<size_t>(end - (aligned + mapped_bytes_)));
    }
    madvise(aligned, mapped_bytes_, MADV_HUGEPAGE);
    base = aligned;
  }
  data_ = reinterpret_cast<float*>(base);
}

FloatBlock::~FloatBlock() { Free(); }

FloatBlock::FloatBlock(FloatBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      rows_(std::exchange(other.rows_, 0)),
      cols_(std::exchange(other.cols_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

FloatBlock& FloatBlock::operator=(FloatBlock&& other) noexcept {
  if (this != &other) {
    Free();
    data_ = std::exchange(other.data_, nullptr);
    rows_ = std::exchange(other.rows_, 0);
    cols_ = std::exchange(other.cols_, 0);
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

FloatBlock FloatBlock::Clone() const {
  FloatBlock copy(rows_, cols_);
  std::copy_n(data_, size(), copy.data_);
  return copy;
}

void FloatBlock::Free() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
  data_ = nullptr;
}

}  // namespace weft
