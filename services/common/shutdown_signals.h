// ShutdownSignals turns SIGTERM and SIGINT into a request that a main waits for, on a thread of its
// own (no code runs in a signal handler). A second signal ends the process at once.
//
// Construct it first in main: the signals are blocked for this thread and for those it starts
// later. They stay blocked for children; whoever starts some gives them a mask of their own.
//
// Thread-safety: all methods may be called from any thread. One object a process.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/mutex.h"

namespace weft {

class ShutdownSignals {
 public:
  ShutdownSignals();
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // True from the first signal, or Request, on.
  const std::atomic<bool>& requested() const { return requested_; }
  // The process ends for a reason of its own.
  void Request() ABSL_LOCKS_EXCLUDED(mu_, listener_mu_);

  // `listener` is called once, at the request (at once, if that has been made), on the thread that
  // makes it. Null: nobody from now on; no call is under way when this returns.
  void SetListener(std::function<void()> listener) ABSL_LOCKS_EXCLUDED(listener_mu_);

  void Wait() ABSL_LOCKS_EXCLUDED(mu_);
  // False when `duration` was over first.
  bool WaitFor(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void WaitForSignals();

  std::atomic<bool> requested_ = false;
  std::atomic<bool> ending_ = false;
  Mutex mu_;
  CondVar changed_;
  Mutex listener_mu_;
  std::function<void()> listener_ ABSL_GUARDED_BY(listener_mu_);
  std::thread thread_;
};

}  // namespace weft
