#include "services/common/shutdown_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <thread>

namespace weft {
namespace {

TEST(ShutdownSignalsTest, ASignalBecomesARequest) {
  int calls = 0;
  {
    ShutdownSignals signals;
    signals.SetListener([&] { ++calls; });
    EXPECT_FALSE(signals.requested());

    kill(getpid(), SIGTERM);
    signals.Wait();

    EXPECT_TRUE(signals.requested());
    EXPECT_TRUE(signals.WaitFor(absl::Hours(1)));
  }
  EXPECT_EQ(calls, 1);
}

TEST(ShutdownSignalsTest, ARequestOfTheProcessItselfCounts) {
  ShutdownSignals signals;
  signals.Request();
  signals.Request();
  signals.Wait();
  EXPECT_TRUE(signals.requested());
}

TEST(ShutdownSignalsTest, ItsEndIsNoRequest) {
  int calls = 0;
  {
    ShutdownSignals signals;
    signals.SetListener([&] { ++calls; });
  }
  EXPECT_EQ(calls, 0);
}

TEST(ShutdownSignalsTest, AListenerHearsOfTheRequestThatWasMade) {
  int calls = 0;
  ShutdownSignals signals;
  signals.Request();
  signals.SetListener([&] { ++calls; });
  signals.Request();
  EXPECT_EQ(calls, 1);
}

TEST(ShutdownSignalsTest, AListenerThatIsGoneIsNotCalled) {
  int calls = 0;
  ShutdownSignals signals;
  signals.SetListener([&] { ++calls; });
  signals.SetListener(nullptr);
  signals.Request();
  EXPECT_EQ(calls, 0);
}

// What the listener uses may be destroyed as soon as SetListener(nullptr) returns.
TEST(ShutdownSignalsTest, NoCallIsUnderWayWhenTheListenerIsGone) {
  for (int round = 0; round < 200; ++round) {
    ShutdownSignals signals;
    auto used = std::make_unique<int>(0);
    signals.SetListener([&used] { ++*used; });
    std::thread requesting([&signals] { signals.Request(); });
    signals.SetListener(nullptr);
    used = nullptr;
    requesting.join();
  }
}

TEST(ShutdownSignalsTest, WaitForEndsInTime) {
  ShutdownSignals signals;
  EXPECT_FALSE(signals.WaitFor(absl::Milliseconds(1)));
}

TEST(ShutdownSignalsDeathTest, ASecondSignalEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ShutdownSignals signals;
        kill(getpid(), SIGINT);
        signals.Wait();
        kill(getpid(), SIGINT);
        pause();
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace weft
