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
    for (auto& [record, replaces] : pending_) {
      if (replaces) synced_.clear();
      synced_.push_back(std::move(record));
    }
    pending_.clear();
    return absl::OkStatus();
  }
  // The process was killed.
  void LoseUnsynced() { pending_.clear(); }

 private:
  std::vector<std::pair<std::string, bool>> pending_;
  std::vector<std::string> synced_;
};

}  // namespace weft::testing
