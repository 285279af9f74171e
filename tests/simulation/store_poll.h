// StorePoll is the poll of a store at the lock server, as PollLockServer makes it.
#pragma once

#include <functional>

#include "services/common/polled_store.h"
#include "tests/simulation/lock_process.h"
#include "tests/simulation/process.h"

namespace weft::simulation {

class StorePoll {
 public:
  // Begins at once. `change`: may change an answer before it is taken (weakened rules); may be
  // null. `exit`: the process is to end.
  StorePoll(Process* process, LockProcess* lock, PolledStore* store, StoreRunInfo run,
            std::function<void(StoreInstructions*)> change,
            std::function<void(const std::string&)> exit);

  // There is something new to report.
  void Interrupt();
  // Reports for the last time, then calls `done`.
  void Last(std::function<void()> done);

 private:
  void Poll(Duration wait, std::function<void()> last);
  void Take(const absl::StatusOr<Told<StoreInstructions>>& told);

  Process* const process_;
  LockProcess* const lock_;
  PolledStore* const store_;
  const StoreRunInfo run_;
  const std::function<void(StoreInstructions*)> change_;
  const std::function<void(const std::string&)> exit_;
  uint64_t number_ = 0;  // of the poll under way
  bool told_run_ = false;
};

}  // namespace weft::simulation
