#include "services/lock_server/memory_run_store.h"

#include "services/common/check.h"

namespace weft {

absl::Status MemoryRunStore::Append(const RunChange& change) {
  WEFT_CHECK(state_.has_value());
  ApplyChange(change, &*state_);
  return absl::OkStatus();
}

absl::Status MemoryRunStore::Replace(const RunState& state) {
  state_ = state;
  return absl::OkStatus();
}

}  // namespace weft
