// Runs in a cluster with the servers that most tests want, and one trainer.
#pragma once

#include <utility>
#include <vector>

#include "services/common/check.h"
#include "tests/lock_server/cluster_fixture.h"

namespace weft::testing {

inline constexpr SessionId kAnna = 1001;
inline constexpr StoreId kDiskStore = 11;
inline constexpr StoreId kMemoryStore = 12;
inline const std::vector<Place> kDisk = {{kDiskStore, 0}};
inline const std::vector<Place> kMemory = {{kMemoryStore, 1}};  // of its first incarnation

// Two partitions and the two buckets between them: the second grant reads what the first one
// stored.
inline RunPlan TwoBuckets() {
  RunPlan plan = MakeClusterPlan(2);
  plan.bucket_edges[0] = {0, 10, 10, 0};
  return plan;
}

struct DiskRun : ClusterRun {
  explicit DiskRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(kDiskStore, 1)).ok());
    Register(kAnna);
  }
};

struct MemoryRun : ClusterRun {
  explicit MemoryRun(RunPlan plan) : ClusterRun(std::move(plan)) {
    WEFT_CHECK(Report(PartitionServer(kMemoryStore, 1, false)).ok());
    Register(kAnna);
  }
  // The memory server dies and is there again, with nothing but what was on its disk.
  absl::StatusOr<StoreInstructions> RestartStore() {
    return Report(PartitionServer(kMemoryStore, 2, false));
  }
  // It does what it is told about persisting.
  void Persist(Incarnation incarnation = 1) {
    const auto told = Report(PartitionServer(kMemoryStore, incarnation, false));
    const auto order = FindOrder<PersistShards>(*told);
    WEFT_CHECK(order.has_value());
    WEFT_CHECK(Report(PartitionServer(kMemoryStore, incarnation, false),
                      {{order->first, absl::OkStatus(), std::nullopt}}, order->second.shards)
                   .ok());
  }
};

// A run with a durable partition server and one parameter server that is ready.
struct FullRun : DiskRun {
  explicit FullRun(RunPlan plan) : DiskRun(std::move(plan)) {
    WEFT_CHECK(ReportParams(ParamServer(21), 1, 0).ok());
  }
  explicit FullRun(int partitions) : FullRun(MakeClusterPlan(partitions, 1)) {}

  // The parameter server cuts, and its snapshot is stored.
  void CutAndStore(Generation generation, int64_t pass) {
    const auto told = ReportParams(ParamServer(21), generation, pass - 1);
    const auto cut = FindOrder<CutParameters>(*told);
    WEFT_CHECK(cut.has_value() && cut->second.first_open_pass == pass);
    const auto next = ReportParams(ParamServer(21), generation, pass,
                                   {{cut->first, absl::OkStatus(), std::nullopt}});
    const auto snapshot = FindOrder<StoreSnapshot>(*next);
    WEFT_CHECK(snapshot.has_value() && snapshot->second.first_open_pass == pass);
    WEFT_CHECK(ReportParams(
                   ParamServer(21), generation, pass,
                   {{snapshot->first, absl::OkStatus(), StoredAt(snapshot->second.version, kDisk)}})
                   .ok());
  }
};

}  // namespace weft::testing
