#include "services/lock_server/run_loop.h"

#include <algorithm>
#include <utility>

namespace weft {

RunLoop::RunLoop(RunCoordinator* run, RunStore* store, const Clock& clock,
                 std::function<void(const absl::Status&)> on_failure,
                 std::function<void(const LogEvent&)> log)
    : on_failure_(std::move(on_failure)), batches_(run, store, clock, std::move(log)) {
  thread_ = std::thread([this] { Run(); });
}

RunLoop::~RunLoop() {
  Drain();
  {
    MutexLock lock(&mu_);
    ending_ = true;
    submitted_.SignalAll();
  }
  thread_.join();
}

void RunLoop::Submit(Call call, SteadyTime deadline) {
  MutexLock lock(&mu_);
  queue_.push_back({std::move(call), deadline});
  submitted_.Signal();
}

void RunLoop::Drain() {
  draining_ = true;
  MutexLock lock(&mu_);
  submitted_.SignalAll();
}

void RunLoop::Run() {
  while (true) {
    std::vector<RunBatches::Waiting> calls;
    {
      MutexLock lock(&mu_);
      // Until there is something to do, at most until the next tick: deadlines are looked at then.
      const auto tick = std::chrono::steady_clock::now() + SessionLeases::kTick;
      while (queue_.empty() && !ending_ && !draining_ && !batches_.changed()) {
        if (!submitted_.WaitUntil(&mu_, tick)) break;
      }
      calls.swap(queue_);
      if (ending_ && calls.empty() && !batches_.waiting()) return;
      if (draining_ && calls.empty() && !batches_.waiting()) {
        // Drained; whoever comes now is answered at once.
        while (queue_.empty() && !ending_) {
          if (!submitted_.WaitUntil(&mu_, tick)) break;
        }
        calls.swap(queue_);
      }
    }
    const absl::Status status = batches_.Run(std::move(calls), draining_);
    if (status.ok()) continue;
    on_failure_(status);
    break;
  }
  // Nobody is answered any more; what is known to be lost is dropped until the end.
  MutexLock lock(&mu_);
  while (!ending_) {
    queue_.clear();
    submitted_.Wait(&mu_);
  }
}

}  // namespace weft
