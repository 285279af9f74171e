// ParamClient keeps a trainer's copy of what all trainers share in step with the parameter servers:
// the model's parameters, and the tables of entity types with one partition (which nobody locks).
//
// Implementations: LocalParamClient, where the trainer's copy is the only one; ClusterParamClient.
// Thread-safety: Join and BeginPass while nobody writes the live state; the others: any thread.
#pragma once

#include <atomic>
#include <cstdint>
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
  // As `unpartitioned`: the rows that were written. Empty marks: not tracked.
  std::vector<ChangedRows> unpartitioned_changed;

  // From now on whoever writes a row marks it.
  void TrackChanges();
};

class ParamClient {
 public:
  virtual ~ParamClient() = default;

  // Fills `live` (already of the right names and shapes) with the current values and begins to
  // exchange changes with it. `live` must outlive this client.
  virtual absl::Status Join(SharedState* live) = 0;

  // What is trained from now on belongs to this pass.
  virtual void BeginPass(int64_t pass) {}

  // Sends what `live` has gained, durably. After it returns OK, every change made before the call
  // is kept by the servers.
  virtual absl::Status Flush() = 0;

  // Called before each batch; returns at once as long as `live` is as fresh as it should be. Waits
  // otherwise, until it is, or `stop` becomes true.
  // Errors: why it will not become so: Aborted (begin a new session and join anew), or the
  // servers'.
  virtual absl::Status WaitUntilFresh(const std::atomic<bool>& stop) { return absl::OkStatus(); }
};

}  // namespace weft
