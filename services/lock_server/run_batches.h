// RunBatches makes the calls to a run, batch by batch: all changes of a batch share one sync of the
// store, and the answers leave after it. So no answer shows anything that is not durable, and
// nobody waits while holding a thread. RunLoop without its thread.
//
// A call that cannot be answered yet waits; it is looked at again whenever something changed, and
// must be answered at its deadline. The run's clock ticks with the batches.
//
// Not thread-safe, but for changed().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/clock.h"
#include "services/common/log_event.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_store.h"

namespace weft {

class RunBatches {
 public:
  // Sends an answer. Called after the sync.
  using Answer = std::function<void()>;
  // Makes the call; none: not yet. `last`: its time is up, it has to be answered now.
  using Call = std::function<std::optional<Answer>(bool last)>;
  struct Waiting {
    Call call;
    SteadyTime deadline;
  };

  // All must outlive this object. `log`: called with each thing that happened; may be null.
  RunBatches(RunCoordinator* run, RunStore* store, const Clock& clock,
             std::function<void(const LogEvent&)> log);

  // Makes `calls` after those that wait, and answers what can be answered; `drain`: all of them.
  // Errors: of a failed write. Nobody is answered then, now and later: the process is to end.
  absl::Status Run(std::vector<Waiting> calls, bool drain);

  // Whether calls wait.
  bool waiting() const { return !waiting_.empty(); }
  // Whether something has changed since they were looked at.
  bool changed() const { return Revision() != seen_; }

 private:
  uint64_t Revision() const;

  RunCoordinator* const run_;
  RunStore* const store_;
  const Clock& clock_;
  const std::function<void(const LogEvent&)> log_;
  std::vector<Waiting> waiting_;  // in order of arrival
  uint64_t seen_ = 0;             // revision at the last look at them
  SteadyTime next_tick_;
};

}  // namespace weft
