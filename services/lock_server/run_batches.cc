#include "services/lock_server/run_batches.h"

#include <utility>

namespace weft {

RunBatches::RunBatches(RunCoordinator* run, RunStore* store, const Clock& clock,
                       std::function<void(const LogEvent&)> log)
    : run_(run),
      store_(store),
      clock_(clock),
      log_(std::move(log)),
      next_tick_(clock.SteadyNow() + SessionLeases::kTick) {}

uint64_t RunBatches::Revision() const {
  return run_->grant_revision() + run_->sync_revision() + run_->view_revision();
}

absl::Status RunBatches::Run(std::vector<Waiting> calls, bool drain) {
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
    std::optional<Answer> answer = waiting.call(drain || now >= waiting.deadline);
    if (answer.has_value()) {
      answers.push_back(*std::move(answer));
    } else {
      later.push_back(std::move(waiting));
    }
  };
  for (Waiting& waiting : waiting_) {
    if (changed || drain || now >= waiting.deadline) {
      look(waiting);
    } else {
      later.push_back(std::move(waiting));
    }
  }
  for (Waiting& call : calls) look(call);
  waiting_ = std::move(later);

  if (status.ok()) status = store_->Sync();
  for (const LogEvent& event : run_->TakeEvents()) {
    if (log_ != nullptr) log_(event);
  }
  if (!status.ok()) {
    waiting_.clear();
    return status;
  }
  for (const Answer& answer : answers) answer();
  return absl::OkStatus();
}

}  // namespace weft
