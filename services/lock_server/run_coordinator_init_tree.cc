// The order of the first grants in a cluster. Partitions that are trained apart from each other
// from their initial values end in spaces of their own, which later training brings together badly:
// so a bucket waits until one of its partitions has been trained, as in PyTorch-BigGraph.
#include "services/lock_server/run_coordinator.h"

namespace weft {

std::optional<BucketScheduler::Trained> RunCoordinator::InitTree(
    const std::vector<PartitionKey>& resident) {
  if (!plan_.cluster.has_value() || !plan_.cluster->init_tree) return std::nullopt;
  // What the first pass does not train has no edges there.
  if (state_.position.pass > 0 || all_trained_in_ == state_.generation) return std::nullopt;
  BucketScheduler::Trained trained = {BitSet(plan_.num_lhs), BitSet(plan_.num_rhs)};
  bool all = true;
  const auto insert = [&](const BucketScheduler::PartitionedType& type, PartitionId partition) {
    if (type.lhs) trained.lhs.Insert(partition);
    if (type.rhs) trained.rhs.Insert(partition);
  };
  for (const BucketScheduler::PartitionedType& type : plan_.partitioned_types) {
    const int count = type.lhs ? plan_.num_lhs : plan_.num_rhs;
    for (PartitionId p = 0; p < count; ++p) {
      if (state_.versions.current({type.id, p}) != kInitialToken) {
        insert(type, p);
      } else {
        all = false;
      }
    }
    // What is still being stored was trained, too.
    for (const PartitionKey& key : resident) {
      if (key.entity_type == type.id) insert(type, key.partition);
    }
  }
  if (all) {
    all_trained_in_ = state_.generation;
    tree_waits_.clear();
    return std::nullopt;
  }
  return trained;
}

bool RunCoordinator::HasWaitedForTree(SessionId id) {
  const SteadyTime now = clock_.SteadyNow();
  const SteadyTime since = tree_waits_.try_emplace(id, now).first->second;
  // Somebody has to begin; and nobody waits for long.
  return state_.grants.empty() || now - since >= plan_.cluster->init_tree_wait;
}

}  // namespace weft
