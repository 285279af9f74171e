// ExternalPartitioner sorts edges into groups without changing their order within a group, in
// bounded memory: what does not fit goes to a temporary file.
//
// Edges are collected in the order they come. When the buffer is full, it is sorted by group (by
// counting, stable) and appended to the file as one run. A group is read back run by run, the rest
// from memory. The file has no name, so it vanishes with the process however that ends.
//
// Memory: about `memory_bytes`, and 4 bytes a group and run (a run holds memory_bytes / 36 edges).
// Errors: ResourceExhausted when the disk is full; messages name the folder.
// Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// An edge on its way to its bucket.
struct EdgeRecord {
  uint32_t lhs;
  uint32_t rhs;
  uint32_t rel;
  float weight;
  bool operator==(const EdgeRecord&) const = default;
};

class ExternalPartitioner {
 public:
  struct Options {
    uint32_t num_groups = 1;
    int64_t memory_bytes = int64_t{64} << 20;
    std::string folder;  // where the temporary file lies
  };
  using Visit = std::function<absl::Status(std::span<const EdgeRecord>)>;

  explicit ExternalPartitioner(const Options& options);
  ~ExternalPartitioner();

  // Adds edges[i] to group groups[i].
  absl::Status Add(std::span<const EdgeRecord> edges, std::span<const uint32_t> groups);

  // After the last Add, before the first Read.
  absl::Status Finish();

  int64_t size(uint32_t group) const { return sizes_[group]; }

  // Calls `visit` with the edges of a group, in the order they were added, piece by piece. Groups
  // may be read in any order and repeatedly. Stops at the first error of `visit` and returns it.
  absl::Status Read(uint32_t group, const Visit& visit) const;

 private:
  struct Run {
    int64_t offset;               // in the file, in bytes
    std::vector<uint32_t> begin;  // of every group, in edges within the run; one more for the end
  };

  // Sorts the buffer into sorted_ by group, and fills `begin`.
  void Sort(std::vector<uint32_t>* begin);
  absl::Status Spill();

  const Options options_;
  const size_t capacity_;  // edges of the buffer
  std::vector<EdgeRecord> buffer_;
  std::vector<uint32_t> groups_;  // of the buffered edges
  std::vector<EdgeRecord> sorted_;
  std::vector<uint32_t> sorted_begin_;
  std::vector<int64_t> sizes_;
  std::vector<Run> runs_;
  int fd_ = -1;
  int64_t file_bytes_ = 0;
};

}  // namespace weft
