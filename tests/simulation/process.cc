#include "tests/simulation/process.h"

namespace weft::simulation {

Process::Process(World* world, std::string name, double clock_rate)
    : world_(world), name_(std::move(name)), rate_(clock_rate) {}

SteadyTime Process::OwnClock::SteadyNow() const {
  const Duration since = process_->world_->now() - process_->rate_since_;
  return SteadyTime(Seconds(1) + process_->clock_base_ +
                    std::chrono::duration_cast<Duration>(since * process_->rate_));
}

void Process::SetClockRate(double rate) {
  clock_base_ = clock_.SteadyNow().time_since_epoch() - Seconds(1);
  rate_since_ = world_->now();
  rate_ = rate;
}

void Process::Start() {
  if (up_) return;
  up_ = true;
  frozen_until_ = {};
  Log("starts");
  const absl::Status begun = Begin();
  if (!begun.ok()) Exit(std::string(begun.message()));
}

void Process::Kill() {
  if (!up_) return;
  Log("killed");
  up_ = false;
  ++life_;
  End();
  StartLater();
}

void Process::StartLater() {
  if (!restarts) return;
  world_->After(world_->Between(Milliseconds(50), Seconds(4)), [this] { Start(); });
}

void Process::Exit(const std::string& why) {
  if (!up_) return;
  Log("exits: " + why);
  up_ = false;
  ++life_;
  world_->After(Duration{}, [this] {
    End();
    StartLater();
  });
}

void Process::After(Duration delay, std::function<void()> work) {
  if (!up_) return;  // it has just ended
  world_->AfterIn(this, life_, std::chrono::duration_cast<Duration>(delay / rate_),
                  std::move(work));
}

}  // namespace weft::simulation
