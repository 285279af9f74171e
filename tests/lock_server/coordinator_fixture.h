// Makes runs for tests of RunCoordinator: one entity type "user" on both sides, 10 edges a bucket.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "services/common/check.h"
#include "services/lock_server/memory_run_store.h"
#include "services/lock_server/run_coordinator.h"

namespace weft::testing {

inline RunPlan MakePlan(int partitions, int64_t edges_per_bucket = 10) {
  RunPlan plan;
  plan.num_lhs = partitions;
  plan.num_rhs = partitions;
  if (partitions > 1) {
    plan.partitioned_types = {{.id = 0, .lhs = true, .rhs = true, .bytes = 100}};
  }
  plan.bucket_order = BucketOrder::kOutsideIn;
  plan.num_epochs = 2;
  plan.bucket_edges = {std::vector<int64_t>(
      static_cast<size_t>(partitions) * static_cast<size_t>(partitions), edges_per_bucket)};
  return plan;
}

inline RunState MakeState(int partitions) {
  RunState state;
  state.run_id = "r";
  state.seed = 7;
  RunShape::EntityType& user = state.shape.entity_types.emplace_back();
  user.name = "user";
  user.num_partitions = partitions;
  state.edge_paths = {{"edges", 0}};
  state.versions = VersionTable({partitions});
  return state;
}

inline std::unique_ptr<RunCoordinator> StartRun(const RunPlan& plan, const RunState& state,
                                                RunStore* store) {
  auto coordinator = RunCoordinator::Start(plan, state, store);
  WEFT_CHECK(coordinator.ok());
  return *std::move(coordinator);
}

inline BucketStats StatsOf(const GrantedBucket& bucket) {
  BucketStats stats;
  stats.bucket = bucket.bucket;
  stats.trained_edges = bucket.expected_edges;
  stats.train_seconds = 1;
  stats.train = {bucket.expected_edges, {{"loss", 0.5}}};
  return stats;
}

// The release of a grant that went well.
inline ReleaseRequest ReleaseOf(const Grant& grant) {
  ReleaseRequest release;
  release.token = grant.token;
  for (const GrantedPartition& partition : grant.partitions)
    release.stored.push_back(partition.key);
  for (const GrantedBucket& bucket : grant.buckets) release.buckets.push_back(StatsOf(bucket));
  return release;
}

// Fails on its nth write, and on every one after.
class FailingRunStore : public MemoryRunStore {
 public:
  explicit FailingRunStore(int fail_at) : left_(fail_at) {}

  absl::Status Append(const RunChange& change) override {
    if (left_-- <= 0) return absl::ResourceExhaustedError("disk full");
    return MemoryRunStore::Append(change);
  }
  absl::Status Replace(const RunState& state) override {
    if (left_-- <= 0) return absl::ResourceExhaustedError("disk full");
    return MemoryRunStore::Replace(state);
  }

 private:
  int left_;
};

}  // namespace weft::testing
