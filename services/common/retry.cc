#include "services/common/retry.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

uint64_t FreshSeed() {
  static const uint64_t process = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  static std::atomic<uint64_t> calls = 0;
  return process + ++calls;
}

absl::Status AtPeer(const Peer& peer, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(peer.role, " at ", peer.address, ": ", status.message()));
}

}  // namespace

bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

Backoff::Backoff(const RetryOptions& options, uint64_t seed)
    : options_(options), random_(seed, RandomUse::kRetry), delay_(options.first_delay) {}

std::optional<absl::Duration> Backoff::Next(SteadyTime now) {
  if (!first_failure_.has_value()) first_failure_ = now;
  const absl::Duration left = options_.patience - Waited(now);
  if (left <= absl::ZeroDuration()) return std::nullopt;
  const double share = 1.0 - 0.5 * (static_cast<double>(random_()) / 4294967296.0);
  const absl::Duration delay = delay_ * share;
  delay_ = std::min(delay_ * 2, options_.max_delay);
  return std::min(delay, left);
}

absl::Duration Backoff::Waited(SteadyTime now) const {
  return first_failure_.has_value() ? absl::FromChrono(now - *first_failure_)
                                    : absl::ZeroDuration();
}

void CancelFlag::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  raised_.SignalAll();
}

bool CancelFlag::cancelled() const {
  MutexLock lock(&mu_);
  return cancelled_;
}

void CancelFlag::Wait() {
  MutexLock lock(&mu_);
  while (!cancelled_) raised_.Wait(&mu_);
}

bool CancelFlag::WaitFor(absl::Duration delay) {
  const SteadyTime deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(delay);
  MutexLock lock(&mu_);
  while (!cancelled_ && raised_.WaitUntil(&mu_, deadline)) {
  }
  return !cancelled_;
}

absl::Status RetryCall(const Peer& peer, const RetryOptions& options, Idempotency idempotency,
                       const RetryTime& time, absl::FunctionRef<absl::Status()> attempt) {
  Backoff backoff(options, FreshSeed());
  while (true) {
    const absl::Status status = attempt();
    if (status.ok()) return status;
    if (!IsTransient(status) || idempotency == Idempotency::kAtMostOnce) {
      return AtPeer(peer, status);
    }
    const SteadyTime now = time.now();
    const std::optional<absl::Duration> delay = backoff.Next(now);
    if (!delay.has_value()) {
      return absl::Status(status.code(),
                          absl::StrCat(peer.role, " at ", peer.address, ": gave up after ",
                                       absl::FormatDuration(
                                           absl::Trunc(backoff.Waited(now), absl::Milliseconds(1))),
                                       ": ", status.message()));
    }
    if (!time.wait(*delay)) return AtPeer(peer, absl::CancelledError(status.message()));
  }
}

absl::Status RetryCall(const Peer& peer, const RetryOptions& options, Idempotency idempotency,
                       CancelFlag* cancel, absl::FunctionRef<absl::Status()> attempt) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto wait = [cancel](absl::Duration delay) { return cancel->WaitFor(delay); };
  return RetryCall(peer, options, idempotency, RetryTime{now, wait}, attempt);
}

}  // namespace weft
