// Ranks, and the metrics made of them: pure functions of how many candidates score above and as
// high as an edge's own entity.
//
// The rank of an edge on one side is 1 + the number of candidates that score above it, and ties
// make a difference: a model that scores everything alike is not a perfect one. Every rank is
// therefore reported under three policies (Berrendorf, Faerman, Vermue, Tresp: "On the ambiguity of
// rank-based evaluation of entity alignment or link prediction methods", 2020).
//
// Sums are taken in ascending order of their terms, so metrics do not depend on the order of the
// edges, and with it on partitions: equal ranks give equal bits.
//
// Thread-safety: pure functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "services/common/types.h"

namespace weft {

// How the candidates of one edge and side compare with the edge's own entity, which is no
// candidate itself.
struct CandidateCounts {
  int64_t candidates = 0;
  int64_t above = 0;  // candidates that score higher
  int64_t ties = 0;   // candidates that score the same

  bool operator==(const CandidateCounts&) const = default;
};

enum class TiePolicy {
  kOptimistic,   // ties rank below the edge: 1 + above
  kRealistic,    // the mean of the two others
  kPessimistic,  // ties rank above the edge: 1 + above + ties
};
inline constexpr TiePolicy kTiePolicies[] = {TiePolicy::kOptimistic, TiePolicy::kRealistic,
                                             TiePolicy::kPessimistic};

// >= 1; a multiple of one half.
double Rank(const CandidateCounts& counts, TiePolicy policy);

// Averages over ranks under one tie policy. All 0 when there are none.
struct RankMetrics {
  double mrr = 0;  // mean of 1 / rank
  double mean_rank = 0;
  double hits_at_1 = 0;  // share of ranks <= 1
  double hits_at_3 = 0;
  double hits_at_10 = 0;
  double hits_at_50 = 0;
};

struct EvaluationMetrics {
  int64_t count = 0;  // ranks that were averaged
  RankMetrics optimistic;
  RankMetrics realistic;
  RankMetrics pessimistic;
  // Mean of (candidates below + ties / 2) / candidates over the edges that have candidates; none:
  // no edge has.
  std::optional<double> auc;

  const RankMetrics& ranks(TiePolicy policy) const;
};

EvaluationMetrics ComputeMetrics(std::span<const CandidateCounts> counts);

// One evaluated edge under both protocols; [0] is the corruption of the left-hand side (the head is
// asked for), [1] of the right-hand side. A side that was not asked for has no counts: all 0.
struct EdgeCounts {
  CandidateCounts raw[2];
  CandidateCounts filtered[2];  // known true edges are no candidates
  // A side that cannot be asked for, being featurized: not among the metrics.
  bool unranked[2] = {false, false};

  bool operator==(const EdgeCounts&) const = default;
};

// The metrics of some edges under one protocol. A side that was not asked for has count 0; `both`
// pools the sides' ranks, so it is the mean of the two.
struct SideMetrics {
  EvaluationMetrics lhs;
  EvaluationMetrics rhs;
  EvaluationMetrics both;
};

struct GroupMetrics {
  int64_t num_edges = 0;
  SideMetrics raw;
  SideMetrics filtered;
};

// The metrics of the edges at positions `group` of `edges`, for the sides of `sides`.
GroupMetrics ComputeGroupMetrics(std::span<const EdgeCounts> edges, std::span<const int64_t> group,
                                 std::span<const Side> sides);

}  // namespace weft
