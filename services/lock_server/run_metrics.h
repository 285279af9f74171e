// What there is to be measured of a run at one moment, and how it is told.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "services/common/metrics.h"
#include "services/lock_server/run_counters.h"
#include "services/lock_server/run_views.h"

namespace weft {

// A matrix of more buckets is not told bucket by bucket.
inline constexpr int64_t kMaxMatrixBuckets = 4096;

struct RunMetrics {
  struct Servers {
    int64_t live = 0;
    int64_t silent = 0;
    int64_t retired = 0;
  };

  RunPhase phase = RunPhase::kPreparing;
  Term term = 0;
  Generation generation = 0;
  PassPosition position;
  int num_epochs = 0;
  int64_t free_buckets = 0;
  int64_t granted_buckets = 0;
  int64_t done_buckets = 0;
  int num_rhs = 1;
  std::vector<BucketStatus> buckets;  // [lhs, rhs]; empty when they are too many
  int64_t pass_edges = 0;
  int64_t pass_committed_edges = 0;
  int64_t run_edges = 0;
  int64_t run_committed_edges = 0;
  std::optional<double> edges_per_second;
  std::optional<double> eta_seconds;
  PassTotals totals;  // of this pass, or of the one before while this one has none
  int64_t sessions = 0;
  int64_t grants = 0;
  double oldest_grant_seconds = 0;
  Servers partition_servers;
  Servers param_servers;
  int64_t kept_bytes = 0;
  int64_t checkpoint_version = 0;
  double checkpoint_age_seconds = 0;
  int64_t pending_checkpoints = 0;
  RunCounters counters{SteadyTime()};
};

void WriteRunMetrics(const RunMetrics& run, MetricsPage* page);

}  // namespace weft
