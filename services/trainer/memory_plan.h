// MemoryPlan says how much memory training takes, and what it does without when memory is short:
// first reading ahead, then storing in the background. `weft plan` prints it, training goes by it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/trainer/training_task.h"

namespace weft {

struct MemoryPlan {
  struct Part {
    std::string what;
    int64_t bytes = 0;
  };

  bool prefetch = true;
  bool background_store = true;
  int64_t bytes = 0;        // about the most that will be in use at once: the sum of the parts
  std::vector<Part> parts;  // what takes nothing is left out
};

struct MemoryNeeds {
  int64_t bucket_edges = 0;                         // of the largest bucket of an edge chunk
  std::optional<int64_t> available = std::nullopt;  // bytes; none when not known
  bool in_cluster = false;      // shared parameters are exchanged, partitions moved, by gRPC
  int64_t bucket_features = 0;  // that the entities of these edges have, both sides together
};

// Never turns on what the configuration turns off.
// Errors: ResourceExhausted when even the last step needs more than is available; the message has
// both figures and what to change, with the number of partitions that would do.
absl::StatusOr<MemoryPlan> PlanMemory(const TrainingTask& task, const MemoryNeeds& needs);

// The edges of the largest chunk of a bucket that has so many; and the features of its edges, if
// all have about as many.
int64_t LargestEdgeChunk(const RunConfig& config, int64_t bucket_edges);
int64_t FeaturesOfChunk(const RunConfig& config, int64_t bucket_edges, int64_t bucket_features);

// The least number of partitions, above the configured ones, with which training would fit.
struct FittingPartitions {
  std::vector<std::string> entity_types;  // that would have so many
  int num_partitions = 0;
};
// None when no number helps: what does not move is too large.
std::optional<FittingPartitions> FindFittingPartitions(const TrainingTask& task,
                                                       const MemoryNeeds& needs);

}  // namespace weft
