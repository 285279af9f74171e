// RunLoop runs the calls to a run on one thread, in the order of their arrival, in batches: all
// changes of a batch share one sync of the store, and the answers leave after it. So no answer
// shows anything that is not durable, and nobody waits while holding a thread.
//
// A call that cannot be answered yet waits; it is looked at again whenever something changed, and
// must be answered at its deadline. The run's clock ticks here, too.
//
// A failed write ends everything: `on_failure` is called, nobody is answered any more.
//
// Thread-safety: all methods may be called from any thread. The thread is its own.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/clock.h"
#include "services/common/mutex.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_store.h"

namespace weft {

class RunLoop {
 public:
  // Sends an answer. Called after the sync.
  using Answer = std::function<void()>;
  // Makes the call; none: not yet. `last`: its time is up, it has to be answered now.
  using Call = std::function<std::optional<Answer>(bool last)>;

  // All must outlive the loop. Called on the loop's thread: `on_failure` at most once, `log` with
  // each line of what happened.
  RunLoop(RunCoordinator* run, RunStore* store, const Clock& clock,
          std::function<void(const absl::Status&)> on_failure,
          std::function<void(const std::string&)> log = nullptr);
  // Ends, as Drain does.
  ~RunLoop();

  // A call that never waits has no use for a deadline.
  void Submit(Call call, SteadyTime deadline = SteadyTime::min());

  // Answers every call that waits, and every one that is still submitted, at once.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Waiting {
    Call call;
    SteadyTime deadline;
  };

  void Run();
  // Answers what can be answered. False: a write failed.
  bool RunBatch(std::vector<Waiting> calls);
  uint64_t Revision() const;

  RunCoordinator* const run_;
  RunStore* const store_;
  const Clock& clock_;
  const std::function<void(const absl::Status&)> on_failure_;
  const std::function<void(const std::string&)> log_;

  Mutex mu_;
  CondVar submitted_;
  std::vector<Waiting> queue_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> draining_ = false;

  // Of the loop's thread.
  std::vector<Waiting> waiting_;  // in order of arrival
  uint64_t seen_ = 0;             // revision at the last look at them
  SteadyTime next_tick_;

  std::thread thread_;
};

}  // namespace weft
