// RunLoop runs the calls to a run on one thread, in the order of their arrival, in batches
// (run_batches.h). The run's clock ticks here, too.
//
// A failed write ends everything: `on_failure` is called, nobody is answered any more.
//
// Thread-safety: all methods may be called from any thread. The thread is its own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/clock.h"
#include "services/common/log_event.h"
#include "services/common/mutex.h"
#include "services/lock_server/run_batches.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_store.h"

namespace weft {

class RunLoop {
 public:
  using Answer = RunBatches::Answer;
  using Call = RunBatches::Call;

  // All must outlive the loop. Called on the loop's thread: `on_failure` at most once, `log` with
  // each thing that happened.
  RunLoop(RunCoordinator* run, RunStore* store, const Clock& clock,
          std::function<void(const absl::Status&)> on_failure,
          std::function<void(const LogEvent&)> log = nullptr);
  // Ends, as Drain does.
  ~RunLoop();

  // A call that never waits has no use for a deadline.
  void Submit(Call call, SteadyTime deadline = SteadyTime::min());

  // Answers every call that waits, and every one that is still submitted, at once.
  void Drain() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();

  const std::function<void(const absl::Status&)> on_failure_;

  Mutex mu_;
  CondVar submitted_;
  std::vector<RunBatches::Waiting> queue_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> draining_ = false;

  RunBatches batches_;  // of the loop's thread

  std::thread thread_;
};

}  // namespace weft
