// LogRunStore keeps encoded records in memory and, like a disk, may lose what was not synced.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/status_macros.h"
#include "services/lock_server/run_codec.h"
#include "services/lock_server/run_store.h"

namespace weft::testing {

class LogRunStore : public RunStore {
 public:
  // What was synced.
  absl::StatusOr<std::optional<RunState>> Load() override {
    std::optional<RunState> state;
    for (const std::string& bytes : synced_) {
      WEFT_ASSIGN_OR_RETURN(RunRecord record, DecodeRecord(bytes));
      if (auto* whole = std::get_if<RunState>(&record)) {
        state = std::move(*whole);
      } else {
        ApplyChange(std::get<RunChange>(record), &*state);
      }
    }
    return state;
  }
  absl::Status Append(const RunChange& change) override {
    pending_.push_back({EncodeChange(change), false});
    return absl::OkStatus();
  }
  absl::Status Replace(const RunState& state) override {
    pending_.push_back({EncodeState(state), true});
    return absl::OkStatus();
  }
  absl::Status Sync() override {
    SyncFirst(pending_.size());
    return absl::OkStatus();
  }
  // Only the first `count` records that are pending get to the disk now.
  void SyncFirst(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (pending_[i].second) synced_.clear();
      synced_.push_back(std::move(pending_[i].first));
    }
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<long>(count));
  }
  size_t num_pending() const { return pending_.size(); }
  // The process was killed.
  void LoseUnsynced() { pending_.clear(); }

 private:
  std::vector<std::pair<std::string, bool>> pending_;
  std::vector<std::string> synced_;
};

}  // namespace weft::testing
