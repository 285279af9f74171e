// FailingPushLog passes calls on until it is told to fail: then everything fails, as a disk does
// that is full.
#pragma once

#include <atomic>

#include "services/param_server/push_log.h"

namespace weft::testing {

class FailingPushLog : public PushLog {
 public:
  explicit FailingPushLog(PushLog* log) : log_(log) {}

  absl::Status Write(absl::Span<const Change> changes) override {
    return fail_write ? absl::ResourceExhaustedError("disk full") : log_->Write(changes);
  }
  absl::Status Sync() override {
    return fail_sync ? absl::InternalError("cannot sync") : log_->Sync();
  }
  absl::Status RemoveAll(std::string_view prefix) override { return log_->RemoveAll(prefix); }
  absl::Status Scan(std::string_view prefix, Visit visit) override {
    return log_->Scan(prefix, visit);
  }

  std::atomic<bool> fail_write = false;
  std::atomic<bool> fail_sync = false;

 private:
  PushLog* const log_;
};

}  // namespace weft::testing
