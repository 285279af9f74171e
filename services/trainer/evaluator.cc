#include "services/trainer/evaluator.h"

#include <algorithm>
#include <map>
#include <vector>

namespace weft {
namespace {

// 2 * rank: an integer under every policy.
int64_t DoubledRank(const CandidateCounts& counts, TiePolicy policy) {
  const int64_t optimistic = 2 + 2 * counts.above;
  switch (policy) {
    case TiePolicy::kOptimistic:
      return optimistic;
    case TiePolicy::kRealistic:
      return optimistic + counts.ties;
    case TiePolicy::kPessimistic:
      return optimistic + 2 * counts.ties;
  }
  return optimistic;
}

double MeanAscending(std::vector<double>* terms) {
  std::sort(terms->begin(), terms->end());
  double sum = 0;
  for (const double term : *terms) sum += term;
  return sum / static_cast<double>(terms->size());
}

RankMetrics ComputeRankMetrics(std::span<const CandidateCounts> all, TiePolicy policy) {
  RankMetrics metrics;
  if (all.empty()) return metrics;
  std::map<int64_t, int64_t> histogram;  // doubled rank -> how many
  for (const CandidateCounts& counts : all) ++histogram[DoubledRank(counts, policy)];

  auto share_up_to = [&](int64_t k) {
    int64_t hits = 0;
    for (const auto& [rank, number] : histogram) hits += rank <= 2 * k ? number : 0;
    return static_cast<double>(hits) / static_cast<double>(all.size());
  };
  metrics.hits_at_1 = share_up_to(1);
  metrics.hits_at_3 = share_up_to(3);
  metrics.hits_at_10 = share_up_to(10);
  metrics.hits_at_50 = share_up_to(50);

  double reciprocals = 0;
  double ranks = 0;
  for (auto it = histogram.rbegin(); it != histogram.rend(); ++it) {  // 1 / rank ascends
    reciprocals += static_cast<double>(it->second) * (2.0 / static_cast<double>(it->first));
  }
  for (const auto& [rank, number] : histogram) {
    ranks += static_cast<double>(number) * (static_cast<double>(rank) / 2.0);
  }
  metrics.mrr = reciprocals / static_cast<double>(all.size());
  metrics.mean_rank = ranks / static_cast<double>(all.size());
  return metrics;
}

}  // namespace

double Rank(const CandidateCounts& counts, TiePolicy policy) {
  return static_cast<double>(DoubledRank(counts, policy)) / 2.0;
}

const RankMetrics& EvaluationMetrics::ranks(TiePolicy policy) const {
  switch (policy) {
    case TiePolicy::kOptimistic:
      return optimistic;
    case TiePolicy::kPessimistic:
      return pessimistic;
    case TiePolicy::kRealistic:
      break;
  }
  return realistic;
}

EvaluationMetrics ComputeMetrics(std::span<const CandidateCounts> counts) {
  EvaluationMetrics metrics;
  metrics.count = static_cast<int64_t>(counts.size());
  metrics.optimistic = ComputeRankMetrics(counts, TiePolicy::kOptimistic);
  metrics.realistic = ComputeRankMetrics(counts, TiePolicy::kRealistic);
  metrics.pessimistic = ComputeRankMetrics(counts, TiePolicy::kPessimistic);

  std::vector<double> areas;
  areas.reserve(counts.size());
  for (const CandidateCounts& c : counts) {
    if (c.candidates == 0) continue;
    const auto below = static_cast<double>(c.candidates - c.above - c.ties);
    areas.push_back((below + static_cast<double>(c.ties) / 2) / static_cast<double>(c.candidates));
  }
  if (!areas.empty()) metrics.auc = MeanAscending(&areas);
  return metrics;
}

GroupMetrics ComputeGroupMetrics(std::span<const EdgeCounts> edges, std::span<const int64_t> group,
                                 std::span<const Side> sides) {
  GroupMetrics metrics;
  metrics.num_edges = static_cast<int64_t>(group.size());
  for (const bool filtered : {false, true}) {
    SideMetrics& to = filtered ? metrics.filtered : metrics.raw;
    std::vector<CandidateCounts> both;
    std::vector<CandidateCounts> one;
    for (const Side side : sides) {
      one.clear();
      for (const int64_t edge : group) {
        const auto s = static_cast<int>(side);
        if (edges[edge].unranked[s]) continue;
        one.push_back(filtered ? edges[edge].filtered[s] : edges[edge].raw[s]);
      }
      both.insert(both.end(), one.begin(), one.end());
      (side == Side::kLhs ? to.lhs : to.rhs) = ComputeMetrics(one);
    }
    to.both = ComputeMetrics(both);
  }
  return metrics;
}

}  // namespace weft
