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
  // `on_request` (may be null) is called once, on the thread of the signals.
  explicit ShutdownSignals(std::function<void()> on_request = nullptr);
  ~ShutdownSignals();
  ShutdownSignals(const ShutdownSignals&) = delete;
  ShutdownSignals& operator=(const ShutdownSignals&) = delete;

  // True from the first signal, or Request, on.
  const std::atomic<bool>& requested() const { return requested_; }
  // The process ends for a reason of its own.
  void Request() ABSL_LOCKS_EXCLUDED(mu_);

  void Wait() ABSL_LOCKS_EXCLUDED(mu_);
  // False when `duration` was over first.
  bool WaitFor(absl::Duration duration) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void WaitForSignals();

  const std::function<void()> on_request_;
  std::atomic<bool> requested_ = false;
  std::atomic<bool> ending_ = false;
  Mutex mu_;
  CondVar changed_;
  std::thread thread_;
};

}  // namespace weft
