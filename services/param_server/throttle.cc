#include "services/param_server/throttle.h"

#include <algorithm>

namespace weft {
namespace {

constexpr int kRest = 10;  // a round and the pause after it, in lengths of the round
// A round may have waited: for a server that was away, for bytes it was not allowed to send yet.
constexpr absl::Duration kMaxPause = absl::Seconds(1);

}  // namespace

Throttle::Throttle(const Options& options, absl::Time now)
    : options_(options),
      round_(absl::InfinitePast()),
      rested_(absl::InfinitePast()),
      filled_(now),
      bytes_(static_cast<double>(options.max_bytes_per_second)) {}

absl::Time Throttle::NextRound() const {
  return std::max({NextMessage(), round_ + options_.interval, rested_});
}

absl::Time Throttle::NextMessage() const {
  if (options_.max_bytes_per_second <= 0 || bytes_ >= 0) return filled_;
  return filled_ + absl::Seconds(-bytes_ / static_cast<double>(options_.max_bytes_per_second));
}

void Throttle::BeginRound(absl::Time now) { round_ = now; }

void Throttle::EndRound(absl::Time now) {
  rested_ = std::min(round_ + kRest * (now - round_), now + kMaxPause);
}

void Throttle::Count(int64_t bytes, absl::Time now) {
  Refill(now);
  if (options_.max_bytes_per_second > 0) bytes_ -= static_cast<double>(bytes);
}

void Throttle::Refill(absl::Time now) {
  if (now <= filled_) return;
  const auto rate = static_cast<double>(options_.max_bytes_per_second);
  bytes_ = std::min(rate, bytes_ + rate * absl::ToDoubleSeconds(now - filled_));
  filled_ = now;
}

}  // namespace weft
