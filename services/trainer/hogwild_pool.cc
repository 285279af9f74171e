#include "services/trainer/hogwild_pool.h"

#include <algorithm>
#include <utility>

#include "services/common/check.h"

namespace weft {

HogwildPool::HogwildPool(int num_workers) {
  WEFT_CHECK(num_workers >= 1);
  threads_.reserve(static_cast<size_t>(num_workers));
  for (int i = 0; i < num_workers; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

HogwildPool::~HogwildPool() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  work_arrived_.SignalAll();
}

absl::Status HogwildPool::Run(int64_t num_tasks, Task task, const RunOptions& options) {
  return RunJob({task, num_tasks, false, options.stop, options.ramp_tasks}, options);
}

absl::Status HogwildPool::RunOnEachWorker(Task task) {
  return RunJob({task, num_workers(), true, nullptr, 0}, RunOptions{});
}

absl::Status HogwildPool::RunJob(const Job& job, const RunOptions& options) {
  next_task_ = 0;
  abort_ = false;
  {
    MutexLock lock(&mu_);
    WEFT_CHECK(job_ == nullptr);
    job_ = &job;
    ++job_number_;
    busy_workers_ = num_workers();
    begun_ = 0;
    failed_task_ = job.num_tasks;
    failure_ = absl::OkStatus();
  }
  work_arrived_.SignalAll();
  auto next_tick = std::chrono::steady_clock::now() + options.tick_interval;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (busy_workers_ > 0) {
        if (options.tick == nullptr) {
          work_done_.Wait(&mu_);
        } else if (!work_done_.WaitUntil(&mu_, next_tick)) {
          break;
        }
      }
      if (busy_workers_ == 0) {
        job_ = nullptr;
        if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
        break;
      }
    }
    (*options.tick)();
    next_tick = std::chrono::steady_clock::now() + options.tick_interval;
  }
  if (!job.one_each && next_task_ < job.num_tasks) {
    return absl::CancelledError("stopped");
  }
  return absl::OkStatus();
}

void HogwildPool::Work(int worker) {
  uint64_t seen = 0;
  while (true) {
    const Job* job = nullptr;
    {
      MutexLock lock(&mu_);
      while (job_number_ == seen && !closing_) work_arrived_.Wait(&mu_);
      if (job_number_ == seen) return;
      seen = job_number_;
      job = job_;
    }
    AwaitTurn(*job, worker);
    WorkOn(*job, worker);
    TellBegun(*job, job->num_tasks);
    bool last = false;
    {
      MutexLock lock(&mu_);
      last = --busy_workers_ == 0;
    }
    if (last) work_done_.Signal();
  }
}

void HogwildPool::AwaitTurn(const Job& job, int worker) {
  const int64_t turn = std::min(job.ramp_tasks * worker, job.num_tasks);
  if (turn == 0) return;
  MutexLock lock(&mu_);
  while (begun_ < turn) ramp_.Wait(&mu_);
}

void HogwildPool::TellBegun(const Job& job, int64_t begun) {
  if (job.ramp_tasks == 0) return;
  const bool is_turn = begun % job.ramp_tasks == 0 && begun / job.ramp_tasks < num_workers();
  if (!is_turn && begun < job.num_tasks) return;
  MutexLock lock(&mu_);
  begun_ = std::max(begun_, begun);
  ramp_.SignalAll();
}

void HogwildPool::WorkOn(const Job& job, int worker) {
  while (true) {
    // A task is claimed only when it will be run: what is left of the cursor tells the caller.
    if (!job.one_each && abort_.load(std::memory_order_relaxed)) return;
    if (job.stop != nullptr && job.stop->load(std::memory_order_relaxed)) return;
    const int64_t task = job.one_each ? worker : next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= job.num_tasks) return;
    TellBegun(job, task + 1);
    if (absl::Status status = job.task(worker, task); !status.ok()) {
      abort_ = true;
      MutexLock lock(&mu_);
      if (task < failed_task_) {
        failed_task_ = task;
        failure_ = std::move(status);
      }
    }
    if (job.one_each) return;
  }
}

}  // namespace weft
