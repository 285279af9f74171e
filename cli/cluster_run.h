// ClusterRun is what a cluster trains, as its lock server tells it: for those who move checkpoints.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/lock_server/grpc_operator_client.h"
#include "services/param_server/param_client.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/model/model_spec.h"

namespace weft::cli {

struct ClusterRun {
  RunConfig config;
  uint64_t seed = 0;
  LocalData data;  // without the number of edges in each bucket
  ModelSpec spec;
};

// Errors: those of a configuration that this program does not understand; InvalidArgument.
absl::StatusOr<ClusterRun> ClusterRunOf(const v1::RunInfo& run);

// What trainers share, with the values that the run begins with.
SharedState InitialSharedState(const ClusterRun& run);

}  // namespace weft::cli
