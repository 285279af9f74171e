// Checker looks at everything that becomes durable at the lock server, and at what lies on the
// disks of the partition servers then: whether it is what docs/protocol.md promises.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "tests/simulation/graph.h"
#include "tests/simulation/lock_process.h"
#include "tests/simulation/partition_process.h"

namespace weft::simulation {

class Checker : public LockProcess::Witness {
 public:
  Checker(World* world, const Graph* graph, const Addresses* addresses)
      : world_(world), graph_(graph), addresses_(addresses) {}

  void OnChange(const RunChange& change) override;
  void OnState(const RunState& state) override;
  // The run is done: it has made `passes` passes, and they are in a manifest that can be read.
  void CheckEnd(int64_t passes);

  // By bucket: how many of its edges are in the parameters at least, at most.
  void CheckCounts(const std::vector<double>& counts, const std::vector<int64_t>& trained);

  bool pushes_were_lost = false;  // with the machine of a parameter server
  // A blob of the version was damaged, or lost with a disk: more than a disk promises to survive.
  void Hurt(const PartitionVersion& version) { hurt_.insert(version); }
  // The run has failed, and there was indeed nothing whole to go back to.
  bool FailureIsRight() const;
  bool Retired(StoreId store) const;
  int64_t passes() const { return passes_; }
  int64_t edges() const { return edges_; }
  int64_t rewinds() const { return rewinds_; }
  const RunState& state() const { return state_; }

 private:
  void CheckGrant(const GrantMade& made);
  void CheckRelease(const GrantReleased& released);
  // The version is exactly `passes` passes and the buckets of `done`. A place that is said to be
  // durable has it.
  void CheckContent(const PartitionVersion& version, int64_t passes,
                    const std::vector<Bucket>& done);
  void CheckManifest(const Manifest& manifest);
  // What is done is in the snapshots.
  void CheckSnapshots(const Manifest& manifest);
  std::vector<int64_t> DoneEdges(int64_t passes, const std::vector<Bucket>& done) const;
  // What is at the place and was not damaged; null: not there.
  const BlobDisk::Blob* Find(const Place& place, const ShardName& name) const;
  // It was there, on a disk that was lost or damaged.
  bool IsHurt(const Place& place, const ShardName& name) const;
  std::vector<Bucket> Done(const std::vector<DoneBucket>& done) const;

  World* const world_;
  const Graph* const graph_;
  const Addresses* const addresses_;
  RunState state_;  // as on the lock server's disk
  std::set<Token> tokens_;
  std::set<PartitionVersion> hurt_;
  int64_t passes_ = 0;
  int64_t edges_ = 0;
  int64_t rewinds_ = 0;
};

}  // namespace weft::simulation
