// RunStore keeps a run's state durably: a state, and the changes that were made to it since.
//
// What was written is durable, at the latest, when a later Sync returns OK: it then survives the
// process being killed, and the machine losing power. Many changes may share one sync. After a
// failed write a store refuses every further one, because what is on disk is then unknown; only
// opening it again helps.
// Errors: ResourceExhausted (disk full), DataLoss (damaged), else Internal.
// Not thread-safe: one writer, the order of calls is the order of changes.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/lock_server/run_state.h"

namespace weft {

class RunStore {
 public:
  virtual ~RunStore() = default;

  // The state with all its changes; none when nothing was ever stored.
  virtual absl::StatusOr<std::optional<RunState>> Load() = 0;
  // Adds a change to the state. REQUIRES: a state has been stored.
  virtual absl::Status Append(const RunChange& change) = 0;
  // Stores `state` in place of everything before, at once.
  virtual absl::Status Replace(const RunState& state) = 0;
  // Makes everything before durable. Stores that write at once have nothing to do.
  virtual absl::Status Sync() { return absl::OkStatus(); }
};

}  // namespace weft
