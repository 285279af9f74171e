#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "services/trainer/hogwild_pool.h"
#include "services/trainer/serial_executor.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(HogwildPoolTest, RunsEveryTaskOnce) {
  HogwildPool pool(4);
  for (const int64_t num_tasks : {0, 1, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
    ASSERT_THAT(pool.Run(num_tasks,
                         [&](int, int64_t task) {
                           ++runs[task];
                           return absl::OkStatus();
                         }),
                IsOk());
    for (const auto& r : runs) EXPECT_EQ(r, 1);
  }
}

TEST(HogwildPoolTest, OneWorkerRunsTasksInOrder) {
  HogwildPool pool(1);
  std::vector<int64_t> order;
  ASSERT_THAT(pool.Run(5,
                       [&](int, int64_t task) {
                         order.push_back(task);
                         return absl::OkStatus();
                       }),
              IsOk());
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(HogwildPoolTest, WorkersKeepTheirThreads) {
  HogwildPool pool(3);
  std::vector<std::thread::id> first(3);
  std::vector<std::thread::id> second(3);
  for (auto* ids : {&first, &second}) {
    ASSERT_THAT(pool.RunOnEachWorker([&](int worker, int64_t) {
      (*ids)[worker] = std::this_thread::get_id();
      return absl::OkStatus();
    }),
                IsOk());
  }
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::set(first.begin(), first.end()).size(), 3u);
}

TEST(HogwildPoolTest, AFailureStopsTheOthersAndIsReported) {
  HogwildPool pool(4);
  std::atomic<int> runs = 0;
  EXPECT_THAT(pool.Run(1'000'000,
                       [&](int, int64_t task) {
                         ++runs;
                         return task == 17 ? absl::OutOfRangeError("task 17") : absl::OkStatus();
                       }),
              StatusIs(absl::StatusCode::kOutOfRange, "task 17"));
  EXPECT_LT(runs, 1'000'000);
  // The pool is usable again.
  EXPECT_THAT(pool.Run(3, [&](int, int64_t) { return absl::OkStatus(); }), IsOk());
}

TEST(HogwildPoolTest, OnARampWorkersJoinOneAfterTheOther) {
  HogwildPool pool(3);
  HogwildPool::RunOptions options;
  options.ramp_tasks = 5;
  std::atomic<int64_t> begun = 0;
  std::atomic<int> runs = 0;
  std::atomic<bool> too_early = false;
  for (const int64_t num_tasks : {0, 1, 7, 1000}) {
    begun = runs = 0;
    ASSERT_THAT(pool.Run(
                    num_tasks,
                    [&](int worker, int64_t) {
                      // The others may have begun a task each that is not counted yet.
                      if (++begun < 5 * worker - 1) too_early = true;
                      ++runs;
                      return absl::OkStatus();
                    },
                    options),
                IsOk());
    EXPECT_EQ(runs, num_tasks);
  }
  EXPECT_FALSE(too_early);
}

TEST(HogwildPoolTest, ARampEndsWithAFailureOrAStop) {
  HogwildPool pool(3);
  std::atomic<bool> stop = false;
  HogwildPool::RunOptions options;
  options.ramp_tasks = 100;
  options.stop = &stop;
  EXPECT_THAT(pool.Run(
                  1000, [](int, int64_t) { return absl::OutOfRangeError("bad"); }, options),
              StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(pool.Run(
                  1000,
                  [&](int, int64_t) {
                    stop = true;
                    return absl::OkStatus();
                  },
                  options),
              StatusIs(absl::StatusCode::kCancelled));
}

TEST(HogwildPoolTest, OfSeveralFailuresTheLowestTaskIsReported) {
  HogwildPool pool(2);
  std::atomic<int> waiting = 0;
  EXPECT_THAT(pool.Run(2,
                       [&](int, int64_t task) -> absl::Status {
                         // Both fail, whoever is first.
                         ++waiting;
                         while (waiting < 2) std::this_thread::yield();
                         return absl::InternalError(task == 0 ? "first" : "second");
                       }),
              StatusIs(absl::StatusCode::kInternal, "first"));
}

TEST(HogwildPoolTest, StopEndsAtATaskBoundary) {
  HogwildPool pool(2);
  std::atomic<bool> stop = false;
  std::atomic<int> runs = 0;
  std::atomic<int> begun_after_stop = 0;
  EXPECT_THAT(pool.Run(1'000'000,
                       [&](int, int64_t) {
                         if (stop) ++begun_after_stop;
                         if (++runs == 10) stop = true;
                         return absl::OkStatus();
                       },
                       {&stop}),
              StatusIs(absl::StatusCode::kCancelled));
  // The other thread may have been about to begin a task.
  EXPECT_LE(begun_after_stop, 1);
  EXPECT_LT(runs, 1'000'000);
}

TEST(HogwildPoolTest, StopAfterTheLastTaskChangesNothing) {
  HogwildPool pool(1);
  std::atomic<bool> stop = false;
  EXPECT_THAT(pool.Run(3,
                       [&](int, int64_t task) {
                         stop = task == 2;
                         return absl::OkStatus();
                       },
                       {&stop}),
              IsOk());
}

TEST(HogwildPoolTest, TicksOnTheCallingThreadWhileItWaits) {
  HogwildPool pool(1);
  std::atomic<int> ticks = 0;
  const std::thread::id caller = std::this_thread::get_id();
  const std::function<void()> tick = [&] {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    ++ticks;
  };
  HogwildPool::RunOptions options;
  options.tick = &tick;
  options.tick_interval = std::chrono::milliseconds(1);
  EXPECT_THAT(pool.Run(
                  1,
                  [&](int, int64_t) {
                    while (ticks < 3) std::this_thread::yield();
                    return absl::OkStatus();
                  },
                  options),
              IsOk());
  EXPECT_GE(ticks, 3);
}

TEST(SerialExecutorTest, RunsInOrderAndDrainWaits) {
  SerialExecutor executor;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) executor.Submit([&order, i] { order.push_back(i); });
  executor.Drain();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(SerialExecutorTest, RunsWhatIsQueuedBeforeItEnds) {
  int runs = 0;
  {
    SerialExecutor executor;
    for (int i = 0; i < 10; ++i) executor.Submit([&] { ++runs; });
  }
  EXPECT_EQ(runs, 10);
}

}  // namespace
}  // namespace weft
