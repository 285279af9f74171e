#include "services/common/retry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;
using SteadyTime = std::chrono::steady_clock::time_point;

const Peer kPeer = {"lock server", "127.0.0.1:7000"};

// Time that passes only while it is waited for.
struct TestTime {
  SteadyTime now = SteadyTime(std::chrono::hours(1));
  std::vector<absl::Duration> waits;
  int cancel_at_wait = -1;

  absl::Status Call(const RetryOptions& options, Idempotency idempotency,
                    absl::FunctionRef<absl::Status()> attempt) {
    const auto read = [this] { return now; };
    const auto wait = [this](absl::Duration delay) {
      if (static_cast<int>(waits.size()) == cancel_at_wait) return false;
      waits.push_back(delay);
      now += absl::ToChronoNanoseconds(delay);
      return true;
    };
    return RetryCall(kPeer, options, idempotency, RetryTime{read, wait}, attempt);
  }
};

TEST(RetryTest, RepeatsTransientFailuresUntilItSucceeds) {
  TestTime time;
  int attempts = 0;

  const absl::Status status = time.Call({}, Idempotency::kIdempotent, [&] {
    ++attempts;
    if (attempts == 1) return absl::UnavailableError("connection refused");
    if (attempts == 2) return absl::DeadlineExceededError("no answer");
    return absl::OkStatus();
  });

  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(time.waits.size(), 2u);
}

TEST(RetryTest, GivesUpWhenPatienceIsOverWithRoleAddressAndCause) {
  TestTime time;
  RetryOptions options;
  options.patience = absl::Seconds(20);
  const SteadyTime start = time.now;
  int attempts = 0;

  const absl::Status status = time.Call(options, Idempotency::kIdempotent, [&] {
    ++attempts;
    return absl::UnavailableError("connection refused");
  });

  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("lock server at 127.0.0.1:7000"),
                             HasSubstr("gave up after 20s"), HasSubstr("connection refused"))));
  EXPECT_EQ(absl::FromChrono(time.now - start), options.patience);
  EXPECT_GT(attempts, 10);
  EXPECT_LT(attempts, 50);
}

TEST(RetryTest, DelaysGrowToTheMaximumWithJitter) {
  TestTime time;
  RetryOptions options;
  options.patience = absl::Hours(1);
  options.first_delay = absl::Milliseconds(100);
  options.max_delay = absl::Seconds(1);
  int attempts = 0;

  const absl::Status status = time.Call(options, Idempotency::kIdempotent, [&] {
    return ++attempts <= 50 ? absl::UnavailableError("down") : absl::OkStatus();
  });

  ASSERT_THAT(status, IsOk());
  ASSERT_EQ(time.waits.size(), 50u);
  for (size_t i = 0; i < time.waits.size(); ++i) {
    const absl::Duration base = std::min(
        absl::Milliseconds(100) * (int64_t{1} << std::min<size_t>(i, 20)), absl::Seconds(1));
    EXPECT_GE(time.waits[i], base / 2) << i;
    EXPECT_LE(time.waits[i], base) << i;
  }
  EXPECT_NE(time.waits[48], time.waits[49]);
}

TEST(RetryTest, PatienceCountsFromTheFirstFailureNotFromTheCall) {
  TestTime time;
  RetryOptions options;
  options.patience = absl::Seconds(5);
  int attempts = 0;

  const absl::Status status = time.Call(options, Idempotency::kIdempotent, [&] {
    if (++attempts == 1) time.now += std::chrono::minutes(10);  // a long poll, then a failure
    return attempts == 1 ? absl::UnavailableError("restarting") : absl::OkStatus();
  });

  EXPECT_THAT(status, IsOk());
}

TEST(RetryTest, OtherFailuresAreNotRepeated) {
  TestTime time;
  int attempts = 0;

  const absl::Status status = time.Call({}, Idempotency::kIdempotent, [&] {
    ++attempts;
    return absl::AbortedError("session has ended");
  });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted,
                               "lock server at 127.0.0.1:7000: session has ended"));
  EXPECT_EQ(attempts, 1);
}

TEST(RetryTest, CallsThatAreNotIdempotentAreNotRepeated) {
  TestTime time;
  int attempts = 0;

  const absl::Status status = time.Call({}, Idempotency::kAtMostOnce, [&] {
    ++attempts;
    return absl::UnavailableError("broken pipe");
  });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(attempts, 1);
}

TEST(RetryTest, CancellingEndsTheWaitWithTheLastCause) {
  TestTime time;
  time.cancel_at_wait = 3;
  int attempts = 0;

  const absl::Status status = time.Call({}, Idempotency::kIdempotent, [&] {
    ++attempts;
    return absl::UnavailableError("connection refused");
  });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("connection refused")));
  EXPECT_EQ(attempts, 4);
}

TEST(CancelFlagTest, CancelWakesAWaiterAndLaterWaitsEndAtOnce) {
  CancelFlag flag;
  bool completed = true;
  std::thread waiter([&] { completed = flag.WaitFor(absl::Hours(1)); });

  flag.Cancel();
  waiter.join();

  EXPECT_FALSE(completed);
  EXPECT_TRUE(flag.cancelled());
  EXPECT_FALSE(flag.WaitFor(absl::Hours(1)));
}

TEST(CancelFlagTest, WaitsThatAreNotCancelledComplete) {
  CancelFlag flag;
  EXPECT_TRUE(flag.WaitFor(absl::Milliseconds(1)));
}

}  // namespace
}  // namespace weft
