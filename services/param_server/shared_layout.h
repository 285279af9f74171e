// SharedLayout names every tensor that all trainers share, in one order: each parameter and each
// table of an entity type with one partition, and beside it its optimizer sums as a tensor of its
// own (they are additive, so they are exchanged like values).
//
// Rows are what is exchanged, versioned and stored as a unit. A tensor with very wide rows (the
// matrix of a linear operator) is cut into rows of kMaxRowFloats instead; its last row may be
// shorter. Row i of a tensor holds its floats [i * cols, min((i + 1) * cols, size)).
//
// Thread-safety: constant after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/changed_rows.h"
#include "services/common/types.h"
#include "services/param_server/param_client.h"

namespace weft {

inline constexpr int64_t kMaxRowFloats = int64_t{1} << 16;

struct SharedTensor {
  std::string name;  // "relations/0/operator/rhs/real", "relations/0/operator/rhs/real/sums"
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t size = 0;  // in floats

  int64_t RowOffset(int64_t row) const { return row * cols; }
  int64_t RowFloats(int64_t row) const { return std::min(cols, size - row * cols); }
  bool operator==(const SharedTensor&) const = default;
};

class SharedLayout {
 public:
  SharedLayout() = default;
  // Errors: InvalidArgument for an empty or repeated name, or a size that does not fit its rows.
  static absl::StatusOr<SharedLayout> Make(std::vector<SharedTensor> tensors);
  // The layout of a state: the same in every process that has the same configuration and data.
  static SharedLayout Of(const SharedState& state);
  // The same, of a state that need not be in memory. A table of 0 rows is of a partitioned type.
  struct TableShape {
    int64_t count = 0;
    int64_t dimension = 0;
  };
  static SharedLayout Of(const ParameterSet& parameters, const std::vector<TableShape>& tables);

  static std::string TableName(EntityTypeId type);

  const std::vector<SharedTensor>& tensors() const { return tensors_; }
  const SharedTensor& tensor(uint32_t t) const { return tensors_[t]; }
  uint32_t num_tensors() const { return static_cast<uint32_t>(tensors_.size()); }
  bool empty() const { return tensors_.empty(); }
  // The same for equal layouts: two processes with different ones must not exchange rows.
  uint64_t hash() const { return hash_; }

 private:
  explicit SharedLayout(std::vector<SharedTensor> tensors);

  std::vector<SharedTensor> tensors_;
  uint64_t hash_ = 0;
};

// A tensor of `rows` x `cols` floats as it is exchanged.
SharedTensor MakeSharedTensor(std::string name, int64_t rows, int64_t cols);

// A block of the live state and its optimizer sums: tensors 2 g and 2 g + 1 of the layout. Their
// rows are marked as changed together.
struct LiveGroup {
  float* values[2] = {nullptr, nullptr};
  int64_t rows = 0;
  int64_t cols[2] = {0, 0};  // of a row of the block
  ChangedRows* changed = nullptr;
};

// The blocks of `state` in the order of SharedLayout::Of. Valid as long as the state's blocks.
std::vector<LiveGroup> LiveGroups(SharedState* state);

}  // namespace weft
