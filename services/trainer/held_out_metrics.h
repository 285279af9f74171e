// HeldOutMetrics sums what PBG reports of the held-out edges of a bucket, before and after training
// it: loss, pos_rank, mrr, r1, r10, r50 and auc, against sampled candidates.
//
// An edge's rank among a side's negatives is 1 + the number of negatives that score at least as
// high as the edge (pessimistic). Metrics are averaged over the sides that have negatives, then
// over edges. `auc` is PBG's sampled one: for as many random pairs of an edge and a negative of the
// batch as it has edges, the share in which the edge scores higher.
//
// Scores are finite: BatchStep::Score refuses others.
// Thread-safety: none; each worker has its own, merged by Add.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "services/common/random.h"
#include "services/common/run_stats.h"
#include "services/trainer/batch_step.h"

namespace weft {

class HeldOutMetrics {
 public:
  // `random` draws the pairs of `auc`.
  void AddBatch(const BatchStats& stats, const BatchScores& scores, RandomStream random);
  void Add(const HeldOutMetrics& other);

  // PBG's names. Edges without any negatives have a loss and no rank; when none has a rank, only
  // the loss is reported.
  Stats Average() const;

 private:
  // pos_rank, mrr, r1, r10, r50, auc, in this order.
  using Sums = std::array<double, 6>;
  static Sums Rank(const std::vector<float>& positives, const std::vector<float>& negatives,
                   int64_t num_negatives, RandomStream* random);

  int64_t count_ = 0;
  double loss_ = 0;
  int64_t ranked_ = 0;  // edges that have negatives
  Sums sums_{};         // over those, of the mean over their sides
};

}  // namespace weft
