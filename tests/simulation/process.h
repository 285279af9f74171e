// Process is a process of a simulated cluster: it lives, is killed, starts again with what its disk
// has, may be frozen for a while, and has a clock of its own, which need not go right.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/clock.h"
#include "services/common/cluster_types.h"
#include "services/common/executor.h"
#include "tests/simulation/world.h"

namespace weft::simulation {

// What a call gives: the answer, and the life of the run in which the callee is.
template <typename T>
struct Told {
  RunContext context;
  T answer;
};
template <typename T>
using Reply = std::function<void(absl::StatusOr<T>)>;

class Process {
 public:
  Process(World* world, std::string name, double clock_rate);
  virtual ~Process() = default;
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  const std::string& name() const { return name_; }
  bool up() const { return up_; }
  uint64_t life() const { return life_; }
  Duration frozen_until() const { return frozen_until_; }
  World& world() { return *world_; }
  const Clock& clock() const { return clock_; }

  void Start();
  // It starts again later, if it `restarts`.
  void Kill();
  bool restarts = true;
  void Freeze(Duration time) { frozen_until_ = world_->now() + time; }
  void SetClockRate(double rate);

  // Runs `work` in this life, after `delay` by its own clock.
  void After(Duration delay, std::function<void()> work);

  // Calls `serve` at `to` and gives `done` its answer, or DeadlineExceeded after `timeout`;
  // Unavailable when nobody lives there. `serve` may run twice, or without anybody hearing of it.
  template <typename T>
  void Call(Process* to, Duration timeout, std::function<void(Reply<T>)> serve, Reply<T> done) {
    auto answered = std::make_shared<Reply<T>>(std::move(done));
    const auto finish = [answered](const absl::StatusOr<T>& answer) {
      if (const Reply<T> once = std::exchange(*answered, nullptr)) once(answer);
    };
    After(timeout, [finish] { finish(absl::DeadlineExceededError("no answer")); });
    const Reply<T> reply = [this, to, life = life_, finish](const absl::StatusOr<T>& answer) {
      world_->Send(to, this, life, [finish, answer] { finish(answer); });
    };
    world_->Send(this, to, std::nullopt, [to, serve = std::move(serve), reply] {
      if (to->up()) {
        serve(reply);
      } else {
        reply(absl::UnavailableError("nobody listens there"));
      }
    });
  }

 protected:
  // A new life begins, with what is on the disk; an error ends it again.
  virtual absl::Status Begin() = 0;
  // Everything in memory is gone.
  virtual void End() = 0;
  void StartLater();
  // The process ends by itself, once the event under way is over.
  void Exit(const std::string& why);
  void Log(const std::string& what) { world_->Log(this, what); }

  World* const world_;

 private:
  class OwnClock : public Clock {
   public:
    explicit OwnClock(const Process* process) : process_(process) {}
    SteadyTime SteadyNow() const override;
    absl::Time Now() const override {
      return absl::FromChrono(std::chrono::system_clock::time_point{});
    }

   private:
    const Process* const process_;
  };

  const std::string name_;
  const OwnClock clock_{this};
  double rate_;
  Duration clock_base_{};  // what the clock showed at `rate_since_`
  Duration rate_since_{};
  bool up_ = false;
  uint64_t life_ = 0;
  Duration frozen_until_{};
};

// Work of a process, done some time later if it still lives then.
class EventExecutor : public Executor {
 public:
  explicit EventExecutor(Process* process) : process_(process) {}
  void Submit(std::function<void()> work) override {
    process_->After(process_->world().Between(Milliseconds(1), Milliseconds(40)), std::move(work));
  }

 private:
  Process* const process_;
};

}  // namespace weft::simulation
