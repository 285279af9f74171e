#include "services/trainer/held_out_metrics.h"

#include <algorithm>

namespace weft {

HeldOutMetrics::Sums HeldOutMetrics::Rank(const std::vector<float>& positives,
                                          const std::vector<float>& negatives,
                                          int64_t num_negatives, RandomStream* random) {
  Sums sums{};
  auto& [rank_sum, reciprocal_sum, within_1, within_10, within_50, auc] = sums;
  const size_t n = positives.size();
  for (size_t i = 0; i < n; ++i) {
    const float* const row = negatives.data() + static_cast<int64_t>(i) * num_negatives;
    const auto rank =
        1 + std::count_if(row, row + num_negatives, [&](float s) { return s >= positives[i]; });
    rank_sum += static_cast<double>(rank);
    reciprocal_sum += 1.0 / static_cast<double>(rank);
    within_1 += rank <= 1;
    within_10 += rank <= 10;
    within_50 += rank <= 50;
    const float positive = positives[random->Below64(n)];
    auc += positive > negatives[random->Below64(negatives.size())];
  }
  return sums;
}

void HeldOutMetrics::AddBatch(const BatchStats& stats, const BatchScores& scores,
                              RandomStream random) {
  count_ += stats.count;
  loss_ += stats.loss;
  const int sides = (scores.lhs_num_neg > 0) + (scores.rhs_num_neg > 0);
  if (sides == 0) return;
  ranked_ += stats.count;
  auto add = [&](const Sums& sums) {
    for (size_t m = 0; m < sums.size(); ++m) sums_[m] += sums[m] / sides;
  };
  if (scores.lhs_num_neg > 0) {
    add(Rank(scores.lhs_pos, scores.lhs_neg, scores.lhs_num_neg, &random));
  }
  if (scores.rhs_num_neg > 0) {
    add(Rank(scores.rhs_pos, scores.rhs_neg, scores.rhs_num_neg, &random));
  }
}

void HeldOutMetrics::Add(const HeldOutMetrics& other) {
  count_ += other.count_;
  loss_ += other.loss_;
  ranked_ += other.ranked_;
  for (size_t m = 0; m < sums_.size(); ++m) sums_[m] += other.sums_[m];
}

Stats HeldOutMetrics::Average() const {
  static constexpr const char* kNames[] = {"pos_rank", "mrr", "r1", "r10", "r50", "auc"};
  Stats stats;
  stats.count = count_;
  if (count_ > 0) stats.metrics["loss"] = loss_ / static_cast<double>(count_);
  for (size_t m = 0; ranked_ > 0 && m < sums_.size(); ++m) {
    stats.metrics[kNames[m]] = sums_[m] / static_cast<double>(ranked_);
  }
  return stats;
}

}  // namespace weft
