// SerialExecutor runs functions one after the other on a thread of its own, in the order given.
//
// Thread-safety: may be called from any thread but its own.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft {

class SerialExecutor {
 public:
  SerialExecutor();
  // Runs what is queued, then ends.
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  void Submit(std::function<void()> work);
  // Returns when everything submitted before has run.
  void Drain();

 private:
  void Loop();

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace weft
