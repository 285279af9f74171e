#include "services/trainer/ranking_scorer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {

absl::Status FusedRankingScorer::MakeReady(const RankingQuery& query, int64_t count, float* rows) {
  WEFT_ASSIGN_OR_RETURN(const RowTransform transform,
                        RowTransform::Make(spec_, parameters_, query.rel, Opposite(query.corrupted),
                                           RowRole::kQuery));
  transform.Apply(count, rows, transform.dimension(), rows, transform.dimension());
  return absl::OkStatus();
}

absl::Status FusedRankingScorer::SetCandidates(const RankingQuery& query, int64_t count,
                                               const float* rows) {
  WEFT_ASSIGN_OR_RETURN(
      const RowTransform transform,
      RowTransform::Make(spec_, parameters_, query.rel, query.corrupted, RowRole::kCandidate));
  dimension_ = transform.dimension();
  auto found = tiles_.find(dimension_);
  if (found == tiles_.end()) {
    WEFT_ASSIGN_OR_RETURN(TileScorer tile, TileScorer::Make(spec_, dimension_));
    found = tiles_.emplace(dimension_, std::move(tile)).first;
  }
  tile_ = &found->second;
  rows_.resize(kCandidates * dimension_);
  transform.Apply(count, rows, dimension_, rows_.data(), dimension_);
  tile_->SetCandidates(count, rows_.data(), dimension_);
  return absl::OkStatus();
}

absl::Status FusedRankingScorer::Score(std::span<const RankingQuery> queries, const float* ready,
                                       float* scores) {
  tile_->Score(static_cast<int64_t>(queries.size()), ready, dimension_, scores);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RankingScorer>> BatchStepRankingScorer::Make(
    const BatchStepFactory& factory, const ModelSpec& spec, ParameterSet* parameters) {
  std::unique_ptr<BatchStepRankingScorer> scorer(new BatchStepRankingScorer(spec));
  for (const Side corrupted : kSides) {
    // The candidates are the uniform negatives of one chunk; the other side has none.
    ModelSpec one_side = spec;
    one_side.num_batch_negs = 0;
    one_side.num_uniform_negs = kCandidates;
    one_side.batch_size = kCandidates;
    one_side.disable_lhs_negs = corrupted == Side::kRhs;
    one_side.disable_rhs_negs = corrupted == Side::kLhs;
    for (RelationSpec& relation : one_side.relations) relation.all_negs = false;
    WEFT_ASSIGN_OR_RETURN(scorer->steps_[static_cast<int>(corrupted)],
                          factory.Make(one_side, parameters));
  }
  return scorer;
}

absl::Status BatchStepRankingScorer::MakeReady(const RankingQuery& /*query*/, int64_t /*count*/,
                                               float* /*rows*/) {
  return absl::OkStatus();  // the step takes rows as they are in the table
}

absl::Status BatchStepRankingScorer::SetCandidates(const RankingQuery& query, int64_t count,
                                                   const float* rows) {
  dimension_ = spec_.dimension(query.rel);
  num_candidates_ = count;
  rows_.assign(rows, rows + count * dimension_);
  return absl::OkStatus();
}

absl::Status BatchStepRankingScorer::Score(std::span<const RankingQuery> queries,
                                           const float* ready, float* scores) {
  for (size_t begin = 0; begin < queries.size();) {
    const RankingQuery& first = queries[begin];
    size_t end = begin + 1;
    while (end < queries.size() && queries[end].corrupted == first.corrupted &&
           (spec_.dynamic() || queries[end].rel == first.rel)) {
      ++end;
    }
    WEFT_RETURN_IF_ERROR(ScoreRun(queries.subspan(begin, end - begin), ready + begin * dimension_,
                                  scores + begin * kCandidates));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status BatchStepRankingScorer::ScoreRun(std::span<const RankingQuery> queries,
                                              const float* ready, float* scores) {
  const auto n = static_cast<int64_t>(queries.size());
  const Side corrupted = queries.front().corrupted;
  known_.assign(ready, ready + n * dimension_);
  sums_.assign(std::max(n, num_candidates_), 0.0f);
  const EmbeddingTable known{known_.data(), sums_.data(), n, dimension_};
  const EmbeddingTable candidates{rows_.data(), sums_.data(), num_candidates_, dimension_};

  // Edge i joins question i's entity and, for want of a better one, the first candidate.
  std::vector<EntityOffset> given(n);
  std::iota(given.begin(), given.end(), 0);
  const std::vector<EntityOffset> any(n, 0);
  std::vector<RelationTypeId> relations;
  for (const RankingQuery& query : queries) relations.push_back(query.rel);
  std::vector<EntityOffset> sampled(kCandidates, 0);
  std::iota(sampled.begin(), sampled.begin() + num_candidates_, 0);

  EdgeBatch batch;
  batch.rel = relations;
  BatchTables tables;
  SampledNegatives negatives;
  BatchScores step_scores;
  if (corrupted == Side::kRhs) {
    batch.lhs = given;
    batch.rhs = any;
    tables = {known, candidates};
    negatives.rhs = std::move(sampled);
  } else {
    batch.lhs = any;
    batch.rhs = given;
    tables = {candidates, known};
    negatives.lhs = std::move(sampled);
  }
  WEFT_RETURN_IF_ERROR(
      steps_[static_cast<int>(corrupted)]->Score(batch, negatives, tables, &step_scores).status());
  const std::vector<float>& all =
      corrupted == Side::kRhs ? step_scores.rhs_neg : step_scores.lhs_neg;
  WEFT_CHECK(static_cast<int64_t>(all.size()) == n * kCandidates);
  std::ranges::copy(all, scores);
  return absl::OkStatus();
}

}  // namespace weft
