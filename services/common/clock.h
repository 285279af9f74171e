// Clock tells the time. Logic takes it as an interface, so that tests can set it.
//
// Durations and deadlines are counted on the steady clock, which a change of the wall clock does
// not touch; the wall clock is for people to read.
// Thread-safety: may be called from any thread.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace weft {

using SteadyTime = std::chrono::steady_clock::time_point;

class Clock {
 public:
  virtual ~Clock() = default;

  virtual SteadyTime SteadyNow() const = 0;
  virtual absl::Time Now() const = 0;

  // This machine's.
  static const Clock& Real();
};

}  // namespace weft
