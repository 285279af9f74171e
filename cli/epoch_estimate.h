// What an epoch will cost: how much of the model moves, and how much of the time of several
// trainers the order of the buckets leaves to them. Found by going through an epoch with the run's
// own scheduler, trainers that take as long as their buckets have edges, and nothing that is
// trained.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "services/common/run_config.h"
#include "services/trainer/local/local_data.h"

namespace weft::cli {

struct EpochEstimate {
  int64_t edges = 0;
  int64_t grants = 0;
  // Partitions with their optimizer state, of all trainers. A partition's first values are counted
  // as read.
  int64_t read_bytes = 0;
  int64_t stored_bytes = 0;
  // Of all trainers together: how many that never wait would do as much. Transfers cost no time.
  double busy_trainers = 1;
};

// `edges_per_second`: of a trainer; says how many buckets a grant has (commit_seconds).
// None when there are too many buckets to go through.
absl::StatusOr<std::optional<EpochEstimate>> EstimateEpoch(const RunConfig& config,
                                                           const LocalData& data, int trainers,
                                                           double edges_per_second);

}  // namespace weft::cli
