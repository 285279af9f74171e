#include "services/lock_server/run_loop.h"

#include <algorithm>
#include <utility>

namespace weft {

RunLoop::RunLoop(RunCoordinator* run, RunStore* store, const Clock& clock,
                 std::function<void(const absl::Status&)> on_failure,
                 std::function<void(const std::string&)> log)
    : run_(run),
      store_(store),
      clock_(clock),
      on_failure_(std::move(on_failure)),
      log_(std::move(log)) {
  next_tick_ = clock_.SteadyNow() + SessionLeases::kTick;
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

uint64_t RunLoop::Revision() const {
  return run_->grant_revision() + run_->sync_revision() + run_->view_revision();
}

void RunLoop::Run() {
  while (true) {
    std::vector<Waiting> calls;
    {
      MutexLock lock(&mu_);
      // Until there is something to do, at most until the next tick: deadlines are looked at then.
      const auto tick = std::chrono::steady_clock::now() + SessionLeases::kTick;
      while (queue_.empty() && !ending_ && !draining_ && Revision() == seen_) {
        if (!submitted_.WaitUntil(&mu_, tick)) break;
      }
      calls.swap(queue_);
      if (ending_ && calls.empty() && waiting_.empty()) return;
      if (draining_ && calls.empty() && waiting_.empty()) {
        // Drained; whoever comes now is answered at once.
        while (queue_.empty() && !ending_) {
          if (!submitted_.WaitUntil(&mu_, tick)) break;
        }
        calls.swap(queue_);
      }
    }
    if (!RunBatch(std::move(calls))) break;
  }
  // Nobody is answered any more; what is known to be lost is dropped until the end.
  waiting_.clear();
  MutexLock lock(&mu_);
  while (!ending_) {
    queue_.clear();
    submitted_.Wait(&mu_);
  }
}

bool RunLoop::RunBatch(std::vector<Waiting> calls) {
  std::vector<Answer> answers;
  const SteadyTime now = clock_.SteadyNow();
  absl::Status status;
  if (now >= next_tick_) {
    status = run_->Tick();
    next_tick_ = now + SessionLeases::kTick;
  }
  // Those that wait came first.
  const uint64_t revision = Revision();
  const bool changed = std::exchange(seen_, revision) != revision;
  std::vector<Waiting> later;
  const auto look = [&](Waiting& waiting) {
    std::optional<Answer> answer = waiting.call(draining_ || now >= waiting.deadline);
    if (answer.has_value()) {
      answers.push_back(*std::move(answer));
    } else {
      later.push_back(std::move(waiting));
    }
  };
  for (Waiting& waiting : waiting_) {
    if (changed || draining_ || now >= waiting.deadline) {
      look(waiting);
    } else {
      later.push_back(std::move(waiting));
    }
  }
  for (Waiting& call : calls) look(call);
  waiting_ = std::move(later);

  if (status.ok()) status = store_->Sync();
  for (const std::string& event : run_->TakeEvents()) {
    if (log_ != nullptr) log_(event);
  }
  if (!status.ok()) {
    on_failure_(status);
    return false;
  }
  for (const Answer& answer : answers) answer();
  return true;
}

}  // namespace weft
