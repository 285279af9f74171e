// WorkerPool runs what would block gRPC's own threads: disks and checksums.
//
// Tasks start in the order they were given. The pool ends when all of them have run.
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft {

class WorkerPool {
 public:
  explicit WorkerPool(int threads);
  ~WorkerPool();

  void Submit(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Work() ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::jthread> threads_;
};

}  // namespace weft
