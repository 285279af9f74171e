// MemoryRunStore keeps a run's state in memory: for tests, and for runs that nobody resumes.
#pragma once

#include <optional>

#include "services/lock_server/run_store.h"

namespace weft {

class MemoryRunStore : public RunStore {
 public:
  absl::StatusOr<std::optional<RunState>> Load() override { return state_; }
  absl::Status Append(const RunChange& change) override;
  absl::Status Replace(const RunState& state) override;

 private:
  std::optional<RunState> state_;
};

}  // namespace weft
