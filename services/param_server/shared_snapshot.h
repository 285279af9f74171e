// A snapshot of what all trainers share, in one file: every parameter and unpartitioned table with
// its Adagrad sums.
//
//   snapshot := "WSS1" run_id:string pass:uint64 steps:uint64 num_blocks:uint64 block* sum:uint64
//   block    := name:string rows:uint64 cols:uint64 values:float32*
//   string   := length:uint64 bytes
// Numbers are little-endian; `sum` is the XXH3-64 of all before it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/param_server/param_client.h"

namespace weft {

// Which moment of which run a snapshot belongs to.
struct SnapshotId {
  std::string run_id;
  int64_t pass = 0;
  bool operator==(const SnapshotId&) const = default;
};

// Writes aside, fsyncs, renames. HOGWILD threads may write `state` meanwhile.
absl::Status WriteSharedSnapshot(const std::string& path, const SnapshotId& id,
                                 const SharedState& state);

// Fills `state`, already of the right names and shapes.
// Errors: NotFound, DataLoss (damaged, or of another run or pass), FailedPrecondition (other names
// or shapes).
absl::Status ReadSharedSnapshot(const std::string& path, const SnapshotId& id, SharedState* state);

}  // namespace weft
