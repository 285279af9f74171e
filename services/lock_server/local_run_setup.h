// The run of a lock server: a new one, from a configuration and the data on this machine, or the
// one that its folder holds. Its plan follows from the stored configuration, which rules.
//
// The data is looked at once, when the run is created: how many entities and edges there are. After
// that the folder has all that is needed. Edges that partition servers hold come later, by an
// import: until then the run only waits for them (RunState::bucket_edges is empty), and what it
// will be follows from the configuration of each start.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/lock_server/run_plan.h"
#include "services/lock_server/run_state.h"

namespace weft {

struct ClusterRunSetup {
  RunPlan plan;
  RunState state;
};

// Errors: FailedPrecondition when the data does not fit the configuration; NotFound, DataLoss for
// files that are missing or damaged.
absl::StatusOr<ClusterRunSetup> MakeClusterRun(const RunConfig& config, int num_param_servers);

// `config`: what the lock server was started with, compared with the stored one. What may change
// takes effect with the next pass; the rest is refused.
// Errors: FailedPrecondition names each key with both values.
absl::StatusOr<ClusterRunSetup> ContinueClusterRun(const RunConfig& config, RunState stored,
                                                   int num_param_servers);

}  // namespace weft
