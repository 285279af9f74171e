// A run on one machine and one session of it, for tests of RunCoordinator.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/lock_server/coordinator_fixture.h"

namespace weft::testing {

// One run and one session of it.
struct TestRun {
  explicit TestRun(int partitions, RunPlan plan) : partitions(partitions), plan(std::move(plan)) {
    Restart();
  }
  explicit TestRun(int partitions) : TestRun(partitions, MakePlan(partitions)) {}

  void Restart() {
    const std::optional<RunState> stored = *store.Load();
    coordinator = StartRun(plan, stored.value_or(MakeState(partitions)), &store);
    session = coordinator->Register();
    number = 0;
  }

  absl::StatusOr<AcquireResult> Acquire(std::vector<PartitionVersion> resident = {}) {
    return coordinator->Acquire(session, {++number, std::move(resident), absl::ZeroDuration()});
  }
  Grant MustAcquire(std::vector<PartitionVersion> resident = {}) {
    const auto result = Acquire(std::move(resident));
    WEFT_CHECK(result.ok() && result->grant.has_value());
    return *result->grant;
  }
  absl::StatusOr<ReleaseResult> Release(const Grant& grant) {
    return coordinator->Release(session, ReleaseOf(grant));
  }
  // Trains and commits what is left of the pass.
  void FinishPass() {
    while (!coordinator->complete_pass().has_value()) {
      WEFT_CHECK(Release(MustAcquire()).ok());
    }
    WEFT_CHECK(coordinator->PassCommitted(coordinator->complete_pass()->version).ok());
  }

  const int partitions;
  const RunPlan plan;
  MemoryRunStore store;
  std::unique_ptr<RunCoordinator> coordinator;
  RunCoordinator::SessionId session = 0;
  uint64_t number = 0;
};

// Two partitions and the two buckets between them.
inline RunPlan OffDiagonalPlan() {
  RunPlan plan = MakePlan(2);
  plan.bucket_edges[0] = {0, 10, 10, 0};
  return plan;
}

}  // namespace weft::testing
