#include "graph/import/external_partitioner.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// The buffered edge, its group, and the edge again when it is sorted.
constexpr int64_t kBytesPerEdge = 2 * sizeof(EdgeRecord) + sizeof(uint32_t);
constexpr int64_t kMinCapacity = 1024;
constexpr int64_t kMaxCapacity = int64_t{1} << 31;  // positions within a run are 32 bits wide
constexpr size_t kReadEdges = size_t{1} << 16;

absl::StatusOr<int> OpenNamelessFile(const std::string& folder) {
  int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0) return fd;
  // Not every file system has nameless files.
  std::string path = absl::StrCat(folder, "/spill.XXXXXX");
  fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create a temporary file in ", folder));
  unlink(path.c_str());
  return fd;
}

absl::Status WriteAll(int fd, const char* data, size_t size, const std::string& folder) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return ErrnoStatus(errno, absl::StrCat("cannot write a temporary file in ", folder));
    }
    data += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status ReadAll(int fd, char* data, size_t size, int64_t offset, const std::string& folder) {
  while (size > 0) {
    const ssize_t n = pread(fd, data, size, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      return ErrnoStatus(n == 0 ? EIO : errno,
                         absl::StrCat("cannot read a temporary file in ", folder));
    }
    data += n;
    offset += n;
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace

ExternalPartitioner::ExternalPartitioner(const Options& options)
    : options_(options),
      capacity_(static_cast<size_t>(
          std::clamp(options.memory_bytes / kBytesPerEdge, kMinCapacity, kMaxCapacity))),
      sizes_(options.num_groups) {}

ExternalPartitioner::~ExternalPartitioner() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ExternalPartitioner::Add(std::span<const EdgeRecord> edges,
                                      std::span<const uint32_t> groups) {
  WEFT_CHECK(edges.size() == groups.size());
  while (!edges.empty()) {
    const size_t take = std::min(edges.size(), capacity_ - buffer_.size());
    if (buffer_.capacity() < buffer_.size() + take) {
      // Twice as much, as vectors do, but never beyond the budget.
      const size_t wanted =
          std::min(capacity_, std::max(2 * buffer_.capacity(), buffer_.size() + take));
      buffer_.reserve(wanted);
      groups_.reserve(wanted);
    }
    buffer_.insert(buffer_.end(), edges.begin(), edges.begin() + static_cast<ptrdiff_t>(take));
    groups_.insert(groups_.end(), groups.begin(), groups.begin() + static_cast<ptrdiff_t>(take));
    edges = edges.subspan(take);
    groups = groups.subspan(take);
    if (buffer_.size() == capacity_) WEFT_RETURN_IF_ERROR(Spill());
  }
  return absl::OkStatus();
}

void ExternalPartitioner::Sort(std::vector<uint32_t>* begin) {
  begin->assign(options_.num_groups + 1, 0);
  for (const uint32_t group : groups_) ++(*begin)[group + 1];
  for (uint32_t g = 0; g < options_.num_groups; ++g) {
    sizes_[g] += (*begin)[g + 1];
    (*begin)[g + 1] += (*begin)[g];
  }
  sorted_.resize(buffer_.size());
  std::vector<uint32_t> next(begin->begin(), begin->end() - 1);
  for (size_t i = 0; i < buffer_.size(); ++i) {
    sorted_[next[groups_[i]]++] = buffer_[i];
  }
  buffer_.clear();
  groups_.clear();
}

absl::Status ExternalPartitioner::Spill() {
  if (fd_ < 0) {
    WEFT_ASSIGN_OR_RETURN(fd_, OpenNamelessFile(options_.folder));
  }
  Run run{file_bytes_, {}};
  Sort(&run.begin);
  const size_t bytes = sorted_.size() * sizeof(EdgeRecord);
  WEFT_RETURN_IF_ERROR(
      WriteAll(fd_, reinterpret_cast<const char*>(sorted_.data()), bytes, options_.folder));
  file_bytes_ += static_cast<int64_t>(bytes);
  runs_.push_back(std::move(run));
  return absl::OkStatus();
}

absl::Status ExternalPartitioner::Finish() {
  Sort(&sorted_begin_);
  buffer_ = {};
  groups_ = {};
  return absl::OkStatus();
}

absl::Status ExternalPartitioner::Read(uint32_t group, const Visit& visit) const {
  WEFT_CHECK(!sorted_begin_.empty());
  std::vector<EdgeRecord> piece;
  for (const Run& run : runs_) {
    for (size_t at = run.begin[group]; at < run.begin[group + 1];) {
      piece.resize(std::min(run.begin[group + 1] - at, kReadEdges));
      WEFT_RETURN_IF_ERROR(
          ReadAll(fd_, reinterpret_cast<char*>(piece.data()), piece.size() * sizeof(EdgeRecord),
                  run.offset + static_cast<int64_t>(at * sizeof(EdgeRecord)), options_.folder));
      WEFT_RETURN_IF_ERROR(visit(piece));
      at += piece.size();
    }
  }
  const size_t begin = sorted_begin_[group];
  const size_t end = sorted_begin_[group + 1];
  if (begin == end) return absl::OkStatus();
  return visit(std::span<const EdgeRecord>(sorted_).subspan(begin, end - begin));
}

}  // namespace weft
