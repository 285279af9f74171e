// PhaseClock adds up where the time of training goes. What is under way counts, too: a bucket may
// train for an hour.
//
// Thread-safety: may be called from any thread; a phase is begun and ended by one at a time.
#pragma once

#include <array>
#include <chrono>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft {

// All but kStore are of the loop's thread, one after the other; storing goes on beside them.
enum class TrainingPhase { kWait, kLoad, kTrain, kEvaluate, kFinish, kStore, kCount };

class PhaseClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // From its construction to its end is time of the phase. The clock must outlive it; null: nobody
  // counts.
  class Span {
   public:
    Span(PhaseClock* clock, TrainingPhase phase) : clock_(clock), phase_(phase) {
      if (clock_ != nullptr) clock_->Begin(phase_);
    }
    ~Span() {
      if (clock_ != nullptr) clock_->End(phase_);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    PhaseClock* const clock_;
    const TrainingPhase phase_;
  };

  double Seconds(TrainingPhase phase) const {
    MutexLock lock(&mu_);
    const Phase& of = phases_[static_cast<size_t>(phase)];
    return of.seconds + Since(of);
  }
  // Since the phase that is under way has begun; 0: it is not.
  double SecondsUnderWay(TrainingPhase phase) const {
    MutexLock lock(&mu_);
    return Since(phases_[static_cast<size_t>(phase)]);
  }

 private:
  struct Phase {
    double seconds = 0;
    std::optional<Time> since;
  };

  static double Since(const Phase& phase) {
    if (!phase.since.has_value()) return 0;
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - *phase.since).count();
  }

  void Begin(TrainingPhase phase) {
    MutexLock lock(&mu_);
    phases_[static_cast<size_t>(phase)].since = std::chrono::steady_clock::now();
  }
  void End(TrainingPhase phase) {
    MutexLock lock(&mu_);
    Phase& of = phases_[static_cast<size_t>(phase)];
    of.seconds += Since(of);
    of.since.reset();
  }

  mutable Mutex mu_;
  std::array<Phase, static_cast<size_t>(TrainingPhase::kCount)> phases_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
