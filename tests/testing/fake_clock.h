// FakeClock stands still until a test moves it. Both clocks move together.
// Thread-safety: may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>

#include "absl/time/time.h"
#include "services/common/clock.h"

namespace weft::testing {

class FakeClock : public Clock {
 public:
  SteadyTime SteadyNow() const override {
    return SteadyTime(std::chrono::nanoseconds(nanoseconds_.load()));
  }
  absl::Time Now() const override {
    return absl::FromUnixSeconds(1'700'000'000) + absl::Nanoseconds(nanoseconds_.load());
  }

  void Advance(absl::Duration by) { nanoseconds_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> nanoseconds_ = 1'000'000'000;
};

}  // namespace weft::testing
