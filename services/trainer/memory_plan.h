// MemoryPlan says how much memory training on this machine takes, and what it does without when
// memory is short: first reading ahead, then storing in the background.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "services/trainer/training_task.h"

namespace weft {

struct MemoryPlan {
  bool prefetch = true;
  bool background_store = true;
  int64_t bytes = 0;  // about the most that will be in use at once
};

// `bucket_edges`: of the largest bucket of an edge chunk. `available`: bytes, none when not known.
// Never turns on what the configuration turns off.
// Errors: ResourceExhausted when even the last step needs more than is available; the message has
// both figures and what to change.
absl::StatusOr<MemoryPlan> PlanMemory(const TrainingTask& task, int64_t bucket_edges,
                                      std::optional<int64_t> available);

}  // namespace weft
