// Repeating calls that failed for a while: back-off with jitter until patience is over.
//
// What may be repeated is said by the caller (Idempotency), and which failures a repeat can mend by
// IsTransient. The status at the end names whom was called, where, for how long, and the last
// cause.
//
// Thread-safety: Backoff is not thread-safe. CancelFlag may be used from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/mutex.h"
#include "services/common/random.h"

namespace weft {

struct RetryOptions {
  // How long an outage may last: from the first failure on. What is shorter only pauses the caller.
  absl::Duration patience = absl::Minutes(5);
  absl::Duration first_delay = absl::Milliseconds(50);  // doubled each time, and shortened by up to
  absl::Duration max_delay = absl::Seconds(2);          // half at random
};

// Unavailable (nobody answers, or not yet) and DeadlineExceeded.
bool IsTransient(const absl::Status& status);

// The delays between the attempts of one call.
class Backoff {
 public:
  // Two callers with different seeds do not stay in step.
  Backoff(const RetryOptions& options, uint64_t seed);

  // How long to wait before the next attempt after one that failed `now`, at the latest until
  // patience is over; none when it is over.
  std::optional<absl::Duration> Next(std::chrono::steady_clock::time_point now);

  // Since the first failure.
  absl::Duration Waited(std::chrono::steady_clock::time_point now) const;

 private:
  const RetryOptions options_;
  RandomStream random_;
  std::optional<std::chrono::steady_clock::time_point> first_failure_;
  absl::Duration delay_;
};

// Raised once, for ever; waits end at once then.
class CancelFlag {
 public:
  void Cancel() ABSL_LOCKS_EXCLUDED(mu_);
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mu_);
  void Wait() ABSL_LOCKS_EXCLUDED(mu_);
  // False when cancelled before `delay` was over.
  bool WaitFor(absl::Duration delay) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  CondVar raised_;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

struct Peer {
  std::string role;     // "lock server"
  std::string address;  // host:port
};

enum class Idempotency {
  kIdempotent,  // the same bytes again have the same effect as once
  kAtMostOnce,  // a failure may have had its effect: never repeated
};

// Where the time comes from: tests put their own.
struct RetryTime {
  absl::FunctionRef<std::chrono::steady_clock::time_point()> now;
  absl::FunctionRef<bool(absl::Duration)> wait;  // false: cancelled
};

// Calls `attempt` until it succeeds, fails for good, patience is over or the wait is cancelled.
// Errors: those of `attempt`, with the peer's role and address before the message; Cancelled.
absl::Status RetryCall(const Peer& peer, const RetryOptions& options, Idempotency idempotency,
                       const RetryTime& time, absl::FunctionRef<absl::Status()> attempt);

// The same on the real clock; `cancel` must outlive the call.
absl::Status RetryCall(const Peer& peer, const RetryOptions& options, Idempotency idempotency,
                       CancelFlag* cancel, absl::FunctionRef<absl::Status()> attempt);

}  // namespace weft
