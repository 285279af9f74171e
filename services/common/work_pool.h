// WorkPool runs functions on a few threads of its own: what may wait for a disk does not belong on
// gRPC's.
//
// Thread-safety: Submit may be called from any thread, the pool's own too.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/executor.h"
#include "services/common/mutex.h"

namespace weft {

class WorkPool : public Executor {
 public:
  explicit WorkPool(int num_threads);  // >= 1
  // Runs what was submitted, then ends.
  ~WorkPool() override;
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Begun in the order of submission.
  void Submit(std::function<void()> work) override ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Work();

  Mutex mu_;
  CondVar arrived_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace weft
