// TrainerMetrics is what there is to be measured of a trainer's own work: phases, edges, loss.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "services/common/metrics.h"
#include "services/common/mutex.h"
#include "services/common/run_stats.h"
#include "services/trainer/phase_clock.h"
#include "services/trainer/training_loop.h"

namespace weft {

class TrainerMetrics {
 public:
  PhaseClock* phases() { return &phases_; }
  void SetThreads(int threads) ABSL_LOCKS_EXCLUDED(mu_);
  void OnProgress(const TrainingProgress& progress) ABSL_LOCKS_EXCLUDED(mu_);
  void OnBucketTrained(const BucketStats& stats) ABSL_LOCKS_EXCLUDED(mu_);

  void Write(MetricsPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  PhaseClock phases_;

  mutable Mutex mu_;
  int threads_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t edges_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t buckets_ ABSL_GUARDED_BY(mu_) = 0;
  // Of the bucket under way: how many of its edges are in `edges_`.
  Bucket bucket_ ABSL_GUARDED_BY(mu_) = {-1, -1};
  int64_t bucket_edges_ ABSL_GUARDED_BY(mu_) = 0;
  double edges_per_second_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<double> loss_ ABSL_GUARDED_BY(mu_);
  std::optional<double> mrr_before_ ABSL_GUARDED_BY(mu_);
  std::optional<double> mrr_after_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
