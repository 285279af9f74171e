#include "services/lock_server/local_lock_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::MakePlan;
using testing::MakeState;
using testing::ReleaseOf;
using testing::StartRun;
using testing::StatusIs;

// Notes what it is told to do.
class FakeCheckpointWriter : public CheckpointWriter {
 public:
  void BeginPass(const PassPosition& position) override {
    calls.push_back(absl::StrCat("begin ", position.pass));
  }
  absl::Status CheckStored(absl::Span<const PartitionVersion>) override { return stored; }
  absl::Status WriteVersion(const CompletePass& pass) override {
    calls.push_back(absl::StrCat("write ", pass.version));
    return written;
  }
  std::vector<int64_t> RemoveVersions(absl::Span<const int64_t> versions) override {
    for (const int64_t version : versions) calls.push_back(absl::StrCat("remove ", version));
    return {versions.begin(), versions.end()};
  }
  void Sweep(const KeepList&) override { ++sweeps; }

  absl::Status stored;
  absl::Status written;
  std::vector<std::string> calls;
  int sweeps = 0;
};

struct TestClient {
  explicit TestClient(const RunPlan& plan, int partitions = 1)
      : coordinator(StartRun(plan, MakeState(partitions), &store)),
        client(coordinator.get(), &writer,
               [this](const CompletePass& pass) { committed.push_back(pass.version); }) {}

  absl::StatusOr<AcquireResult> Acquire(absl::Duration wait = absl::ZeroDuration()) {
    return client.AcquireBucket({++number, {}, wait});
  }

  MemoryRunStore store;
  std::unique_ptr<RunCoordinator> coordinator;
  FakeCheckpointWriter writer;
  std::vector<int64_t> committed;
  LocalLockClient client;
  uint64_t number = 0;
};

TEST(LocalLockClientTest, TheReleaseThatEndsAPassWritesItsVersion) {
  TestClient test(MakePlan(1));
  const auto acquired = test.Acquire();
  ASSERT_THAT(acquired, IsOk());

  const auto released = test.client.ReleaseBucket(ReleaseOf(*acquired->grant));

  ASSERT_THAT(released, IsOk());
  EXPECT_TRUE(released->pass_done);
  EXPECT_THAT(test.writer.calls, ElementsAre("write 1", "begin 1"));
  EXPECT_THAT(test.committed, ElementsAre(1));
  EXPECT_GE(test.writer.sweeps, 1);
}

TEST(LocalLockClientTest, TheOldVersionIsRemovedAfterTheNewOneIsCommitted) {
  TestClient test(MakePlan(1));
  for (int pass = 0; pass < 2; ++pass) {
    const auto acquired = test.Acquire();
    ASSERT_THAT(test.client.ReleaseBucket(ReleaseOf(*acquired->grant)), IsOk());
  }

  EXPECT_THAT(test.writer.calls,
              ElementsAre("write 1", "begin 1", "write 2", "begin 2", "remove 1"));
  EXPECT_TRUE(test.Acquire()->run_done);
}

TEST(LocalLockClientTest, PassesWithoutEdgesAreCommittedByTheFirstAcquire) {
  TestClient test(MakePlan(1, 0));

  const auto acquired = test.Acquire();

  ASSERT_THAT(acquired, IsOk());
  EXPECT_TRUE(acquired->run_done);
  EXPECT_THAT(test.committed, ElementsAre(1, 2));
}

TEST(LocalLockClientTest, WhatIsNotStoredIsNotReleased) {
  TestClient test(MakePlan(1));
  const auto acquired = test.Acquire();
  test.writer.stored = absl::FailedPreconditionError("not here");

  EXPECT_THAT(test.client.ReleaseBucket(ReleaseOf(*acquired->grant)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not here")));

  test.writer.stored = absl::OkStatus();
  EXPECT_THAT(test.client.ReleaseBucket(ReleaseOf(*acquired->grant)), IsOk());
}

TEST(LocalLockClientTest, AVersionThatCannotBeWrittenStopsTheRun) {
  TestClient test(MakePlan(1));
  const auto acquired = test.Acquire();
  test.writer.written = absl::ResourceExhaustedError("disk full");

  EXPECT_THAT(test.client.ReleaseBucket(ReleaseOf(*acquired->grant)),
              StatusIs(absl::StatusCode::kResourceExhausted));

  EXPECT_THAT(test.Acquire(), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(test.coordinator->progress().position.pass, 0);
}

TEST(LocalLockClientTest, ASessionThatIsLeftGivesItsGrantBackToTheNext) {
  TestClient test(MakePlan(2), 2);
  const auto first = test.Acquire();
  ReleaseRequest foreign = ReleaseOf(*first->grant);
  foreign.token += 1000;
  ASSERT_THAT(test.client.ReleaseBucket(foreign), StatusIs(absl::StatusCode::kAborted));

  ASSERT_THAT(test.client.Leave(), IsOk());
  const auto second = test.Acquire();

  ASSERT_THAT(second, IsOk());
  EXPECT_EQ(second->grant->buckets[0].bucket, first->grant->buckets[0].bucket);
}

TEST(LocalLockClientTest, AnAcquireIsAnsweredAtItsDeadlineAtTheLatest) {
  TestClient test(MakePlan(1));
  ASSERT_TRUE(test.Acquire()->grant.has_value());

  const auto second = test.Acquire(absl::Milliseconds(1));

  ASSERT_THAT(second, IsOk());
  EXPECT_FALSE(second->grant.has_value());
  EXPECT_FALSE(second->run_done);
}

TEST(LocalLockClientTest, AnAcquireWaitsForTheReleaseOnAnotherThread) {
  TestClient test(MakePlan(1));
  const auto acquired = test.Acquire();
  std::thread releaser(
      [&] { EXPECT_THAT(test.client.ReleaseBucket(ReleaseOf(*acquired->grant)), IsOk()); });

  const auto next = test.Acquire(absl::Seconds(60));

  releaser.join();
  ASSERT_THAT(next, IsOk());
  ASSERT_TRUE(next->grant.has_value());
  EXPECT_EQ(next->grant->position.pass, 1);
}

TEST(LocalLockClientTest, ThreadsThatReleaseAndAcquireAtOnceCommitEveryPassOnce) {
  RunPlan plan = MakePlan(4);
  plan.num_epochs = 20;
  TestClient test(plan, 4);
  std::vector<Grant> finished;
  std::thread releaser;
  while (true) {
    const auto acquired = test.Acquire(absl::Seconds(60));
    ASSERT_THAT(acquired, IsOk());
    if (acquired->run_done) break;
    if (releaser.joinable()) releaser.join();
    if (!acquired->grant.has_value()) continue;
    releaser = std::thread([&test, grant = *acquired->grant] {
      EXPECT_THAT(test.client.ReleaseBucket(ReleaseOf(grant)), IsOk());
    });
  }
  if (releaser.joinable()) releaser.join();

  std::vector<int64_t> expected;
  for (int64_t version = 1; version <= 20; ++version) expected.push_back(version);
  EXPECT_EQ(test.committed, expected);
}

}  // namespace
}  // namespace weft
