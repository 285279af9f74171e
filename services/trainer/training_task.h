// TrainingTask is what a run trains, with names resolved and sizes known: the configuration, the
// model, the number of entities in every partition.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/common/types.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

struct TrainingTask {
  RunConfig config;
  ModelSpec spec;
  uint64_t seed = 0;                                // of the run, kept with it
  std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]

  // Entity types with one partition are shared by all trainers; nobody locks or moves them.
  bool IsShared(EntityTypeId type) const { return entity_counts[type].size() == 1; }
  // The partition of `type` that the edges of `bucket` touch on `side`.
  PartitionKey Partition(EntityTypeId type, Side side, Bucket bucket) const {
    return {type, IsShared(type) ? 0 : bucket.partition(side)};
  }
  int64_t count(PartitionKey key) const { return entity_counts[key.entity_type][key.partition]; }
  // The number of relation ids that edges may have.
  int64_t num_relations() const {
    return spec.dynamic() ? spec.num_dynamic_relations
                          : static_cast<int64_t>(spec.relations.size());
  }
};

// The seed is left to the run. Errors: InvalidArgument (see MakeModelSpec).
absl::StatusOr<TrainingTask> MakeTrainingTask(
    const RunConfig& config, const std::vector<std::vector<int64_t>>& entity_counts,
    int64_t num_dynamic_relations);

}  // namespace weft
