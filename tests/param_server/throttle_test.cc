#include "services/param_server/throttle.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

const absl::Time kStart = absl::UnixEpoch();

TEST(ThrottleTest, WithoutBoundsARoundMayAlwaysBegin) {
  Throttle throttle({}, kStart);
  throttle.BeginRound(kStart);
  throttle.Count(1'000'000'000, kStart);

  EXPECT_LE(throttle.NextRound(), kStart);
}

TEST(ThrottleTest, RoundsBeginAnIntervalApart) {
  Throttle throttle({absl::Seconds(2), 0}, kStart);
  throttle.BeginRound(kStart);

  EXPECT_EQ(throttle.NextRound(), kStart + absl::Seconds(2));
  EXPECT_LE(throttle.NextMessage(), kStart);
}

TEST(ThrottleTest, ARoundThatTookLongIsFollowedByAPause) {
  Throttle throttle({absl::Seconds(2), 0}, kStart);
  throttle.BeginRound(kStart);
  throttle.EndRound(kStart + absl::Milliseconds(100));
  EXPECT_EQ(throttle.NextRound(), kStart + absl::Seconds(2));

  Throttle often({absl::Milliseconds(20), 0}, kStart);
  often.BeginRound(kStart);
  often.EndRound(kStart + absl::Milliseconds(50));
  EXPECT_EQ(often.NextRound(), kStart + absl::Milliseconds(500));
}

// A server that was away for a minute must not be left alone for nine more.
TEST(ThrottleTest, ThePauseIsShortHoweverLongTheRoundWaited) {
  Throttle throttle({absl::Milliseconds(20), 0}, kStart);
  throttle.BeginRound(kStart);
  throttle.EndRound(kStart + absl::Minutes(1));

  EXPECT_EQ(throttle.NextRound(), kStart + absl::Minutes(1) + absl::Seconds(1));
}

TEST(ThrottleTest, WhatIsBeyondTheBoundIsPaidForByWaiting) {
  Throttle throttle({absl::ZeroDuration(), 100}, kStart);
  throttle.Count(100, kStart);
  EXPECT_LE(throttle.NextMessage(), kStart);
  throttle.Count(250, kStart);

  EXPECT_EQ(throttle.NextMessage(), kStart + absl::Milliseconds(2500));
  EXPECT_EQ(throttle.NextRound(), kStart + absl::Milliseconds(2500));
}

TEST(ThrottleTest, WhatWasNotUsedIsKeptForOneSecond) {
  Throttle throttle({absl::ZeroDuration(), 100}, kStart);
  const absl::Time later = kStart + absl::Seconds(60);
  throttle.Count(100, later);
  EXPECT_LE(throttle.NextMessage(), later);
  throttle.Count(50, later);

  EXPECT_EQ(throttle.NextMessage(), later + absl::Milliseconds(500));
}

}  // namespace
}  // namespace weft
