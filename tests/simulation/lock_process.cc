#include "tests/simulation/lock_process.h"

#include <algorithm>
#include <utility>

#include "services/common/log_event.h"
#include "services/common/status_macros.h"

namespace weft::simulation {

absl::Status LockProcess::Disk::Writable() {
  if (process_->disk_full) failed_ = true;
  if (failed_) return absl::ResourceExhaustedError("the lock server's disk is full");
  return absl::OkStatus();
}

absl::Status LockProcess::Disk::Append(const RunChange& change) {
  WEFT_RETURN_IF_ERROR(Writable());
  unsynced_.emplace_back(change);
  return LogRunStore::Append(change);
}

absl::Status LockProcess::Disk::Replace(const RunState& state) {
  WEFT_RETURN_IF_ERROR(Writable());
  unsynced_.emplace_back(state);
  return LogRunStore::Replace(state);
}

void LockProcess::Disk::Persist(size_t count) {
  SyncFirst(count);
  for (size_t i = 0; i < count; ++i) {
    if (const auto* change = std::get_if<RunChange>(&unsynced_[i])) {
      process_->witness_->OnChange(*change);
    } else {
      process_->witness_->OnState(std::get<RunState>(unsynced_[i]));
    }
  }
  unsynced_.erase(unsynced_.begin(), unsynced_.begin() + static_cast<long>(count));
}

absl::Status LockProcess::Disk::Sync() {
  WEFT_RETURN_IF_ERROR(Writable());
  if (unsynced_.empty()) return absl::OkStatus();
  World& world = *process_->world_;
  if (process_->answers_before_sync && world.Chance(0.9)) return absl::OkStatus();
  if (world.Chance(process_->killed_in_sync)) {
    Persist(world.Below(static_cast<uint32_t>(unsynced_.size()) + 1));
    failed_ = true;
    return absl::InternalError("killed while it wrote");
  }
  Persist(unsynced_.size());
  return absl::OkStatus();
}

void LockProcess::Disk::Crash() {
  LoseUnsynced();
  unsynced_.clear();
  failed_ = false;
}

LockProcess::LockProcess(World* world, double clock_rate, RunPlan plan, RunState first,
                         Witness* witness)
    : Process(world, "lock", clock_rate),
      plan_(std::move(plan)),
      first_(std::move(first)),
      witness_(witness),
      disk_(this) {}

absl::Status LockProcess::Begin() {
  WEFT_ASSIGN_OR_RETURN(std::optional<RunState> stored, disk_.Load());
  RunPlan plan = plan_;
  plan.cluster->incarnation = world_->NewId();
  WEFT_ASSIGN_OR_RETURN(
      run_, RunCoordinator::Start(std::move(plan), stored.value_or(first_), &disk_, clock()));
  batches_ = std::make_unique<RunBatches>(run_.get(), &disk_, clock(),
                                          [this](const LogEvent& event) { Log(ToText(event)); });
  scheduled_ = false;
  ScheduleBatch(SessionLeases::kTick);
  return absl::OkStatus();
}

void LockProcess::End() {
  submitted_.clear();
  batches_.reset();
  run_.reset();
  disk_.Crash();
}

void LockProcess::Submit(RunBatches::Call call, Duration wait) {
  // As lock_server/main.cc: whoever waits is heard three times a lease.
  wait = std::min(wait, plan_.cluster->lease / 3);
  submitted_.push_back({std::move(call), clock().SteadyNow() + wait});
  if (scheduled_) return;
  scheduled_ = true;
  After(world_->Between(Duration(100'000), Milliseconds(2)), [this] {
    scheduled_ = false;
    RunBatch();
  });
}

void LockProcess::ScheduleBatch(Duration delay) {
  After(delay, [this] {
    RunBatch();
    ScheduleBatch(SessionLeases::kTick);
  });
}

void LockProcess::RunBatch() {
  absl::Status status = batches_->Run(std::exchange(submitted_, {}), false);
  while (status.ok() && batches_->changed() && batches_->waiting()) {
    status = batches_->Run({}, false);
  }
  if (run_->superseded()) world_->Fail("the lock server was told of a later life of the run");
  if (!status.ok()) Exit(std::string(status.message()));
}

}  // namespace weft::simulation
