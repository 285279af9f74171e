// RocksDbRunStore keeps a run's state in a RocksDB of its own, a log of records by number:
//
//   key := "r" number (uint64, big-endian)     value := weft.v1.RunRecord
//
// first a state, then the changes since. What is written waits until Sync, which writes all of it
// in one batch with one sync of the write-ahead log. Replace writes a state with the next number
// and removes everything before it, in the same batch.
//
// A process that is killed while it writes leaves an incomplete record at the end of the
// write-ahead log, which nobody was told of: it is dropped. Damage before that is DataLoss.
// One process at a time: a second one is refused (FailedPrecondition names the folder).
#pragma once

#include <memory>
#include <string>

#include "services/common/metrics.h"
#include "services/lock_server/run_store.h"

namespace weft {

class RocksDbRunStore : public RunStore {
 public:
  // The store in the folder `path`, which need not exist.
  static absl::StatusOr<std::unique_ptr<RocksDbRunStore>> Open(const std::string& path);
  ~RocksDbRunStore() override;

  absl::StatusOr<std::optional<RunState>> Load() override;
  absl::Status Append(const RunChange& change) override;
  absl::Status Replace(const RunState& state) override;
  absl::Status Sync() override;

  // RocksDB's health. Thread-safety: any thread.
  void WriteMetrics(MetricsPage* page) const;

 private:
  struct Impl;
  explicit RocksDbRunStore(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace weft
