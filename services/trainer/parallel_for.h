// ParallelFor runs a numbered list of independent tasks on several threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "services/common/mutex.h"

namespace weft {

// Calls fn(worker, task) for every task in [0, num_tasks), on the calling thread (worker 0) and
// min(num_threads, num_tasks) - 1 others; `worker` is below `num_threads`, and one worker runs one
// task at a time. Tasks are handed out in order. After a failure no further task is begun; the
// error of the first failed task is returned, whichever thread it ran on.
template <typename Fn>
absl::Status ParallelFor(int num_threads, int64_t num_tasks, Fn fn) {
  std::atomic<int64_t> next = 0;
  std::atomic<bool> stop = false;
  Mutex mu;
  int64_t failed_task = num_tasks;
  absl::Status failure;
  auto work = [&](int worker) {
    while (!stop.load(std::memory_order_relaxed)) {
      const int64_t task = next.fetch_add(1, std::memory_order_relaxed);
      if (task >= num_tasks) return;
      absl::Status status = fn(worker, task);
      if (status.ok()) continue;
      stop = true;
      MutexLock lock(&mu);
      if (task < failed_task) {
        failed_task = task;
        failure = std::move(status);
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int worker = 1; worker < num_threads && worker < num_tasks; ++worker) {
      others.emplace_back(work, worker);
    }
    work(0);
  }
  return failure;
}

}  // namespace weft
