// RankingTally counts, for every answer of an evaluation, the candidates that score above it and as
// high.
//
// Thread-safety: TakeOwnScores for different questions and Count for any may run concurrently, but
// not both for the same question. Counts are read when nobody counts any more.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/edge_filter.h"
#include "services/trainer/ranking_queries.h"
#include "services/trainer/ranking_tiles.h"

namespace weft {

class RankingTally {
 public:
  // Both must outlive the tally.
  RankingTally(const RankingQueries& queries, const EdgeFilter& filter);

  // Takes the scores of those answers of a question that are among `columns`.
  // scores: [columns.count()], finite, as in Count.
  void TakeOwnScores(int64_t query, const Columns& columns, const float* scores);

  // Adds the candidates `columns` of a question to the counts of its answers, whose own scores are
  // taken. Every candidate is added once. `scratch`: of the calling thread.
  void Count(int64_t query, const Columns& columns, const float* scores,
             std::vector<float>* scratch);

  struct Counts {
    int64_t raw_above = 0;  // the answer itself counts nowhere
    int64_t raw_ties = 0;
    int64_t filtered_above = 0;  // nor does any known answer here
    int64_t filtered_ties = 0;
  };
  // `answer`: its position in RankingQueries::answers().
  const Counts& counts(int64_t answer) const { return counts_[answer]; }

 private:
  const RankingQueries& queries_;
  const EdgeFilter& filter_;
  std::vector<float> own_scores_;  // by answer
  std::vector<Counts> counts_;     // by answer
};

}  // namespace weft
