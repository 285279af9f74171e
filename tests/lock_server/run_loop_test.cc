#include "services/lock_server/run_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/lock_server/cluster_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::ClusterRun;
using testing::IsOk;
using testing::MakeClusterPlan;
using testing::PartitionServer;
using testing::StatusIs;

constexpr SessionId kAnna = 1001;
constexpr SessionId kBert = 1002;
const std::vector<Place> kDisk = {{11, 0}};

// Refuses to sync when told so; counts.
class FailingSyncStore : public testing::LogRunStore {
 public:
  absl::Status Sync() override {
    ++syncs;
    if (failing) return absl::ResourceExhaustedError("disk full");
    return LogRunStore::Sync();
  }
  std::atomic<bool> failing = false;
  std::atomic<int> syncs = 0;
};

struct LoopTest : public ::testing::Test {
  LoopTest() {
    EXPECT_THAT(run.Report(PartitionServer(11, 1)), IsOk());
    run.Register(kAnna);
    run.Register(kBert);
    loop =
        std::make_unique<RunLoop>(run.coordinator.get(), &store, Clock::Real(),
                                  [this](const absl::Status& status) { failed.set_value(status); });
  }

  using Acquired = std::promise<absl::StatusOr<AcquireResult>>;

  std::future<absl::StatusOr<AcquireResult>> Acquire(SessionId session, uint64_t number,
                                                     std::chrono::milliseconds wait) {
    auto promise = std::make_shared<Acquired>();
    loop->Submit(
        [=, this](bool last) -> std::optional<RunLoop::Answer> {
          auto result = run.coordinator->Acquire(session, {number, {}, absl::ZeroDuration()});
          if (result.ok() && !result->grant.has_value() && !last) return std::nullopt;
          return [promise, result] { promise->set_value(result); };
        },
        Clock::Real().SteadyNow() + wait);
    return promise->get_future();
  }
  std::future<absl::StatusOr<ReleaseResult>> Release(SessionId session, const Grant& grant) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<ReleaseResult>>>();
    ReleaseRequest request = testing::ReleaseOf(grant);
    for (const PartitionKey& key : request.stored) {
      request.places.push_back(testing::StoredAt({key, grant.token}, kDisk));
    }
    loop->Submit([=, this](bool) -> std::optional<RunLoop::Answer> {
      auto result = run.coordinator->Release(session, request);
      return [promise, result] { promise->set_value(result); };
    });
    return promise->get_future();
  }

  ClusterRun run{MakeClusterPlan(1)};
  FailingSyncStore store;
  std::promise<absl::Status> failed;
  std::unique_ptr<RunLoop> loop;
};

TEST_F(LoopTest, ACallThatWaitsIsAnsweredWhenSomethingChanged) {
  const auto first = Acquire(kAnna, 1, std::chrono::seconds(60)).get();
  ASSERT_THAT(first, IsOk());
  auto second = Acquire(kBert, 1, std::chrono::seconds(60));

  ASSERT_THAT(Release(kAnna, *first->grant).get(), IsOk());

  const auto granted = second.get();  // of the next pass
  ASSERT_THAT(granted, IsOk());
  EXPECT_EQ(granted->grant->position.pass, 1);
}

TEST_F(LoopTest, ACallThatWaitsIsAnsweredAtItsDeadline) {
  ASSERT_THAT(Acquire(kAnna, 1, std::chrono::seconds(60)).get(), IsOk());

  const auto nothing = Acquire(kBert, 1, std::chrono::milliseconds(10)).get();

  ASSERT_THAT(nothing, IsOk());
  EXPECT_FALSE(nothing->grant.has_value());
}

TEST_F(LoopTest, ADrainAnswersAllThatWait) {
  ASSERT_THAT(Acquire(kAnna, 1, std::chrono::seconds(60)).get(), IsOk());
  auto second = Acquire(kBert, 1, std::chrono::seconds(60));

  loop->Drain();

  EXPECT_FALSE(second.get()->grant.has_value());
  EXPECT_THAT(Acquire(kBert, 1, std::chrono::seconds(60)).get(), IsOk());
}

TEST_F(LoopTest, CallsThatComeTogetherShareASync) {
  // The loop is held by a call, so that others gather.
  std::promise<void> go;
  std::shared_future<void> gate = go.get_future().share();
  loop->Submit([gate](bool) -> std::optional<RunLoop::Answer> {
    gate.wait();
    return [] {};
  });
  std::vector<std::future<absl::StatusOr<AcquireResult>>> calls;
  for (uint64_t i = 0; i < 20; ++i) {
    calls.push_back(Acquire(i % 2 == 0 ? kAnna : kBert, 1, std::chrono::milliseconds(0)));
  }
  const int before = store.syncs;
  go.set_value();
  for (auto& call : calls) ASSERT_THAT(call.get(), IsOk());

  EXPECT_LE(store.syncs - before, 3);
}

TEST_F(LoopTest, AfterAFailedSyncNobodyIsAnswered) {
  store.failing = true;
  auto answer = Acquire(kAnna, 1, std::chrono::seconds(60));

  EXPECT_THAT(failed.get_future().get(), StatusIs(absl::StatusCode::kResourceExhausted));

  loop.reset();
  EXPECT_THROW(answer.get(), std::future_error) << "the promise was dropped unanswered";
}

}  // namespace
}  // namespace weft
