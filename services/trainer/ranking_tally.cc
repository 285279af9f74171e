#include "services/trainer/ranking_tally.h"

#include <atomic>

#include "services/trainer/kernels/rank_count.h"

namespace weft {
namespace {

void AddShared(int64_t* counter, int64_t value) {
  if (value != 0) std::atomic_ref<int64_t>(*counter).fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

RankingTally::RankingTally(const RankingQueries& queries, const EdgeFilter& filter)
    : queries_(queries),
      filter_(filter),
      own_scores_(queries.answers().size()),
      counts_(queries.answers().size()) {}

void RankingTally::TakeOwnScores(int64_t query, const Columns& columns, const float* scores) {
  const RankingQuery& q = queries_.queries()[query];
  for (int64_t a = q.answers_begin; a < q.answers_end; ++a) {
    const int64_t column = columns.Find(queries_.answers()[a].entity);
    if (column >= 0) own_scores_[a] = scores[column];
  }
}

void RankingTally::Count(int64_t query, const Columns& columns, const float* scores,
                         std::vector<float>* scratch) {
  scratch->clear();
  for (const int64_t entity : Within(filter_.KnownAnswers(query), columns.entity(0),
                                     columns.entity(columns.count() - 1) + 1)) {
    const int64_t column = columns.Find(entity);
    if (column >= 0) scratch->push_back(scores[column]);
  }
  const auto num_known = static_cast<int64_t>(scratch->size());
  const RankingQuery& q = queries_.queries()[query];
  for (int64_t a = q.answers_begin; a < q.answers_end; ++a) {
    const float own = own_scores_[a];
    const RankCount all = CountAboveAndTies(scores, columns.count(), own);
    const RankCount known = CountAboveAndTies(scratch->data(), num_known, own);
    // The answer itself, as it was counted: a tie, unless the scorer's bits depend on the tile.
    const int64_t self = columns.Find(queries_.answers()[a].entity);
    const RankCount itself = self < 0 ? RankCount{} : CountAboveAndTies(scores + self, 1, own);
    Counts& counts = counts_[a];
    AddShared(&counts.raw_above, all.above - itself.above);
    AddShared(&counts.raw_ties, all.ties - itself.ties);
    AddShared(&counts.filtered_above, all.above - known.above);
    AddShared(&counts.filtered_ties, all.ties - known.ties);
  }
}

}  // namespace weft
