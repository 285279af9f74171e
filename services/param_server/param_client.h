// ParamClient keeps a trainer's copy of what all trainers share in step with the parameter servers:
// the model's parameters, and the tables of entity types with one partition (which nobody locks).
//
// Implementations: LocalParamClient, where the trainer's copy is the only one.
// Thread-safety: Join once, before training; then any thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "services/common/embedding_partition.h"
#include "services/common/parameter_set.h"

namespace weft {

// Everything shared. HOGWILD threads write it while training.
struct SharedState {
  ParameterSet parameters;
  // By entity type id; an empty block for types that are partitioned.
  std::vector<EmbeddingPartition> unpartitioned;
};

class ParamClient {
 public:
  virtual ~ParamClient() = default;

  // Fills `live` (already of the right names and shapes) with the current values and begins to
  // exchange changes with it. `live` must outlive this client.
  virtual absl::Status Join(SharedState* live) = 0;

  // Sends what `live` has gained, durably. After it returns OK, every change made before the call
  // is kept by the servers.
  virtual absl::Status Flush() = 0;
};

}  // namespace weft
