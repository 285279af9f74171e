// HogwildPool is a fixed set of threads that work through numbered tasks side by side.
//
// Tasks are handed out in ascending order from one shared cursor, so that fast workers take more of
// them; with one worker they run in order. A worker that fails stops the others at their next task.
// The threads live as long as the pool: what they set up for themselves (thread-local state, OpenMP
// settings) is made once.
//
// Thread-safety: one caller at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/common/mutex.h"

namespace weft {

class HogwildPool {
 public:
  using Task = absl::FunctionRef<absl::Status(int worker, int64_t task)>;

  struct RunOptions {
    // No further task begins once it is true. Must outlive the run. Null: never.
    const std::atomic<bool>* stop = nullptr;
    // Called on the calling thread about every `tick_interval` while the workers work, if set.
    const std::function<void()>* tick = nullptr;
    std::chrono::milliseconds tick_interval{200};
    // Worker w begins when w * ramp_tasks tasks have begun. 0: all at once.
    int64_t ramp_tasks = 0;
  };

  explicit HogwildPool(int num_workers);  // >= 1
  ~HogwildPool();
  HogwildPool(const HogwildPool&) = delete;
  HogwildPool& operator=(const HogwildPool&) = delete;

  int num_workers() const { return static_cast<int>(threads_.size()); }

  // Runs tasks 0 .. num_tasks - 1 and returns when all workers are idle again.
  // Errors: the first failed task's (the one of the lowest number, if several failed); Cancelled
  // when `stop` kept a task from running.
  absl::Status Run(int64_t num_tasks, Task task, const RunOptions& options);
  absl::Status Run(int64_t num_tasks, Task task) { return Run(num_tasks, task, RunOptions{}); }

  // Runs `task` once on every worker: task i on worker i.
  absl::Status RunOnEachWorker(Task task);

 private:
  struct Job {
    Task task;
    int64_t num_tasks = 0;
    bool one_each = false;
    const std::atomic<bool>* stop = nullptr;
    int64_t ramp_tasks = 0;
  };

  absl::Status RunJob(const Job& job, const RunOptions& options);
  void Work(int worker);
  void WorkOn(const Job& job, int worker);
  void AwaitTurn(const Job& job, int worker) ABSL_LOCKS_EXCLUDED(mu_);
  // `begun` tasks of a job with a ramp have begun; all, if nobody is to wait any more.
  void TellBegun(const Job& job, int64_t begun) ABSL_LOCKS_EXCLUDED(mu_);

  Mutex mu_;
  CondVar work_arrived_;
  CondVar work_done_;
  const Job* job_ ABSL_GUARDED_BY(mu_) = nullptr;
  uint64_t job_number_ ABSL_GUARDED_BY(mu_) = 0;
  int busy_workers_ ABSL_GUARDED_BY(mu_) = 0;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  int64_t failed_task_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  CondVar ramp_;
  int64_t begun_ ABSL_GUARDED_BY(mu_) = 0;

  std::atomic<int64_t> next_task_{0};
  std::atomic<bool> abort_{false};

  std::vector<std::jthread> threads_;  // last: they use everything above
};

}  // namespace weft
