// LockProcess is the lock server: RunCoordinator and RunBatches over a store that a crash may
// interrupt, and the calls as LockServiceImpl makes them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "services/lock_server/run_batches.h"
#include "services/lock_server/run_coordinator.h"
#include "tests/lock_server/log_run_store.h"
#include "tests/simulation/process.h"

namespace weft::simulation {

class LockProcess : public Process {
 public:
  // Told of what becomes durable, in order.
  class Witness {
   public:
    virtual ~Witness() = default;
    virtual void OnChange(const RunChange& change) = 0;
    virtual void OnState(const RunState& state) = 0;
  };

  // `first`: what the run begins with. `witness` must outlive the process.
  LockProcess(World* world, double clock_rate, RunPlan plan, RunState first, Witness* witness);

  // In each sync the process is killed with this probability, before, in or after it.
  double killed_in_sync = 0;
  // Nothing can be written.
  bool disk_full = false;
  bool answers_before_sync = false;  // a weakened rule

  // Makes a call for a caller in `context`; one that gives nothing waits, up to `wait`
  // or a third of a lease.
  template <typename T>
  using RunCall = std::function<std::optional<absl::StatusOr<T>>(RunCoordinator* run, bool last)>;
  template <typename T>
  void Serve(const RunContext& context, Duration wait, RunCall<T> call, Reply<Told<T>> reply) {
    RunCoordinator* const run = run_.get();
    Submit(
        [=](bool last) -> std::optional<RunBatches::Answer> {
          std::optional<absl::StatusOr<T>> result;
          if (const absl::Status fits = run->Check(context); !fits.ok()) {
            result.emplace(fits);
          } else {
            result = call(run, last);
          }
          if (!result.has_value()) return std::nullopt;
          if (!result->ok()) return [reply, status = result->status()] { reply(status); };
          return [reply, told = Told<T>{run->context(), **result}] { reply(told); };
        },
        wait);
  }

  // What is known of the run now; null while the process is down.
  const RunCoordinator* run() const { return run_.get(); }
  const RunPlan& plan() const { return plan_; }

 protected:
  absl::Status Begin() override;
  void End() override;

 private:
  // A disk that is being written when the process is killed.
  class Disk : public testing::LogRunStore {
   public:
    explicit Disk(LockProcess* process) : process_(process) {}
    absl::Status Append(const RunChange& change) override;
    absl::Status Replace(const RunState& state) override;
    absl::Status Sync() override;
    // The process has ended.
    void Crash();

   private:
    absl::Status Writable();
    void Persist(size_t count);

    LockProcess* const process_;
    std::vector<std::variant<RunChange, RunState>> unsynced_;  // as the base's pending
    bool failed_ = false;
  };

  void Submit(RunBatches::Call call, Duration wait);
  void ScheduleBatch(Duration delay);
  void RunBatch();

  const RunPlan plan_;
  const RunState first_;
  Witness* const witness_;
  Disk disk_;
  std::unique_ptr<RunCoordinator> run_;
  std::unique_ptr<RunBatches> batches_;
  std::vector<RunBatches::Waiting> submitted_;
  bool scheduled_ = false;
};

}  // namespace weft::simulation
