#include "services/trainer/training_task.h"

#include "services/common/status_macros.h"

namespace weft {

absl::StatusOr<TrainingTask> MakeTrainingTask(
    const RunConfig& config, const std::vector<std::vector<int64_t>>& entity_counts,
    int64_t num_dynamic_relations) {
  TrainingTask task;
  task.config = config;
  task.entity_counts = entity_counts;
  WEFT_ASSIGN_OR_RETURN(task.spec, MakeModelSpec(config, num_dynamic_relations));
  return task;
}

}  // namespace weft
