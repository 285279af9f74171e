// ParamSnapshot is one server's rows at one instant, as a blob: what a manifest names and what a
// rewind restores. Restoring reads the blobs of all servers, so their number may change.
//
//   snapshot := "WPS1" run_id:string generation:uint64 first_open_pass:uint64 steps:uint64
//               num_tensors:uint64 tensor* num_ranges:uint64 range* sum:uint64
//   tensor   := name:string rows:uint64 cols:uint64 size:uint64
//   range    := tensor:uint64 first_row:uint64 num_rows:uint64 float32*
//   string   := length:uint64 bytes
// Numbers are little-endian; `sum` is the XXH3-64 of all before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/float_block.h"
#include "services/param_server/row_table.h"

namespace weft {

struct ParamSnapshot {
  std::string run_id;
  uint64_t generation = 0;
  int64_t first_open_pass = 0;
  int64_t steps = 0;  // of the optimizer; server 0 counts them
  SharedLayout layout;
  std::vector<RowRange> ranges;
  FloatBlock values;  // [1, floats], in the order of `ranges`

  // Gives the encoding piece by piece, so that a large one is never in memory twice.
  using Sink = absl::FunctionRef<absl::Status(std::string_view bytes)>;
  absl::Status Encode(Sink sink) const;
  uint64_t EncodedBytes() const;

  // Errors: DataLoss (damaged, cut short, or not a snapshot).
  static absl::StatusOr<ParamSnapshot> Decode(std::string_view bytes);
};

// Fills the rows of a table from the snapshots of all servers of one cut.
class SnapshotRestore {
 public:
  // `table` must outlive this object.
  explicit SnapshotRestore(RowTable* table);

  // Errors: FailedPrecondition (another layout).
  absl::Status Add(const ParamSnapshot& snapshot);
  // Errors: DataLoss when a row is in none of the snapshots.
  absl::Status Finish() const;
  int64_t steps() const { return steps_; }

 private:
  RowTable* const table_;
  std::vector<bool> filled_;  // by row index
  int64_t steps_ = 0;
};

}  // namespace weft
