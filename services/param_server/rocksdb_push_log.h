// RocksDbPushLog keeps a PushLog in a folder. What was written survives kill -9; what was synced
// survives the machine's failure.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/metrics.h"
#include "services/param_server/push_log.h"

namespace weft {

class RocksDbPushLog : public PushLog {
 public:
  // Creates the folder if there is none.
  // Errors: Unavailable (another process has it open), DataLoss, ResourceExhausted, Internal.
  static absl::StatusOr<std::unique_ptr<RocksDbPushLog>> Open(const std::string& folder);
  ~RocksDbPushLog() override;

  absl::Status Write(absl::Span<const Change> changes) override;
  absl::Status Sync() override;
  absl::Status RemoveAll(std::string_view prefix) override;
  absl::Status Scan(std::string_view prefix, Visit visit) override;

  // RocksDB's health. Thread-safety: any thread.
  void WriteMetrics(MetricsPage* page) const;

 private:
  struct Impl;
  explicit RocksDbPushLog(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
