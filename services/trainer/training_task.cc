#include "services/trainer/training_task.h"

#include <utility>

#include "graph/entity_files.h"
#include "services/common/status_macros.h"

namespace weft {

absl::StatusOr<TrainingTask> LoadTrainingTask(const RunConfig& config, uint64_t seed) {
  TrainingTask task;
  task.config = config;
  task.seed = seed;
  for (const EntityConfig& type : config.entities) {
    std::vector<int64_t>& counts = task.entity_counts.emplace_back();
    for (int partition = 0; partition < type.num_partitions; ++partition) {
      WEFT_ASSIGN_OR_RETURN(int64_t count,
                            ReadEntityCount(config.entity_path, type.name, partition));
      counts.push_back(count);
    }
  }
  int64_t num_dynamic_relations = 0;
  if (config.dynamic_relations) {
    WEFT_ASSIGN_OR_RETURN(num_dynamic_relations, ReadRelationCount(config.entity_path));
  }
  WEFT_ASSIGN_OR_RETURN(task.spec, MakeModelSpec(config, num_dynamic_relations));
  return task;
}

}  // namespace weft
