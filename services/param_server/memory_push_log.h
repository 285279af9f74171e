// MemoryPushLog keeps nothing beyond the process; for servers that are restored from snapshots
// alone, and for tests, which look at what a machine's failure would have left.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"
#include "services/param_server/push_log.h"

namespace weft {

class MemoryPushLog : public PushLog {
 public:
  // `keep_unsynced`: remembers what Sync has covered, for Crash; costs a copy of every change.
  explicit MemoryPushLog(bool keep_unsynced = false) : keep_unsynced_(keep_unsynced) {}

  absl::Status Write(absl::Span<const Change> changes) override;
  absl::Status Sync() override;
  absl::Status RemoveAll(std::string_view prefix) override;
  absl::Status Scan(std::string_view prefix, Visit visit) override;

  // What a failure of the machine does: of the batches that were not synced, only the first
  // `surviving` are still there.
  void Crash(size_t surviving);
  size_t num_unsynced() const;

 private:
  using Contents = std::map<std::string, std::string, std::less<>>;
  struct StoredChange {
    std::string key;
    std::string value;
    bool remove = false;
  };

  const bool keep_unsynced_;
  mutable Mutex mu_;
  Contents contents_ ABSL_GUARDED_BY(mu_);
  Contents synced_ ABSL_GUARDED_BY(mu_);
  std::vector<std::vector<StoredChange>> unsynced_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
