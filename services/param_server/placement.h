// ParamPlacement says which parameter server holds which rows: tensors are cut into row blocks, and
// a block's server is XXH3-64 of `name \0 block` (seed 0) modulo the number of servers.
//
// The order of the servers comes from the lock server alone and is fixed within a generation, so
// every process finds the same server for a row (PyTorch-BigGraph used Python's per-process hash,
// and its trainers could talk to different servers).
// Thread-safety: constant after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "services/param_server/shared_layout.h"

namespace weft {

// Rows [first, first + count) of a tensor.
struct RowRange {
  uint32_t tensor = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const RowRange&) const = default;
};

class ParamPlacement {
 public:
  static constexpr int64_t kBlockFloats = int64_t{1} << 16;

  explicit ParamPlacement(int num_servers) : num_servers_(num_servers) {}  // >= 1

  int num_servers() const { return num_servers_; }
  static int64_t RowsPerBlock(const SharedTensor& tensor);
  int ServerOfBlock(const SharedTensor& tensor, int64_t block) const;
  int ServerOf(const SharedTensor& tensor, int64_t row) const {
    return ServerOfBlock(tensor, row / RowsPerBlock(tensor));
  }

  // All that `server` holds, in ascending order; neighbouring blocks are one range.
  std::vector<RowRange> RangesOf(const SharedLayout& layout, int server) const;

 private:
  int num_servers_;
};

}  // namespace weft
