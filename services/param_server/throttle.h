// Throttle bounds the bytes per second of the parameter exchange, and how often it begins.
//
// A token bucket that holds one second's bytes: what was not used is there for the next second, and
// an exchange that was larger than what is there is paid for by waiting after it.
// Thread-safety: not thread-safe. Time: on whatever steady clock the caller reads.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace weft {

class Throttle {
 public:
  struct Options {
    // From the begin of a round to the next; a round that took long is followed by a pause, a
    // second at most, so that rounds fill a tenth of the time.
    absl::Duration interval = absl::ZeroDuration();
    int64_t max_bytes_per_second = 0;  // 0: no bound
  };

  Throttle(const Options& options, absl::Time now);

  // When the next round may begin; not in the future: now.
  absl::Time NextRound() const;
  // When the next message of a round may go.
  absl::Time NextMessage() const;
  void BeginRound(absl::Time now);
  void EndRound(absl::Time now);
  // Bytes sent and received.
  void Count(int64_t bytes, absl::Time now);

 private:
  void Refill(absl::Time now);

  const Options options_;
  absl::Time round_;
  absl::Time rested_;  // the end of the pause
  absl::Time filled_;
  double bytes_;  // left; < 0: owed
};

}  // namespace weft
