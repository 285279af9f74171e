#include "services/trainer/ranking_worker.h"

#include <algorithm>
#include <utility>

#include "services/common/status_macros.h"

namespace weft {

absl::Status RankingWorker::UseDimension(int64_t dimension) {
  auto found = scorers_.find(dimension);
  if (found == scorers_.end()) {
    WEFT_ASSIGN_OR_RETURN(TileScorer scorer, TileScorer::Make(*spec_, dimension));
    found = scorers_.emplace(dimension, std::move(scorer)).first;
  }
  scorer_ = &found->second;
  dimension_ = dimension;
  rows_.resize(TileScorer::kCandidates * dimension);
  scores_.resize(TileScorer::kQueries * TileScorer::kCandidates);
  return absl::OkStatus();
}

absl::Status RankingWorker::SetCandidates(const RowTransform& transform, const FloatBlock& table,
                                          int64_t begin, int64_t count) {
  WEFT_RETURN_IF_ERROR(UseDimension(table.cols()));
  transform.Apply(count, table.data() + begin * dimension_, dimension_, rows_.data(), dimension_);
  scorer_->SetCandidates(count, rows_.data(), dimension_);
  return absl::OkStatus();
}

absl::Status RankingWorker::SetCandidates(const RowTransform& transform, const FloatBlock& table,
                                          int64_t first_entity, std::span<const int64_t> entities) {
  WEFT_RETURN_IF_ERROR(UseDimension(table.cols()));
  float* to = rows_.data();
  for (const int64_t entity : entities) {
    std::ranges::copy(table.row(entity - first_entity), to);
    to += dimension_;
  }
  const auto count = static_cast<int64_t>(entities.size());
  transform.Apply(count, rows_.data(), dimension_, rows_.data(), dimension_);
  scorer_->SetCandidates(count, rows_.data(), dimension_);
  return absl::OkStatus();
}

void RankingWorker::Score(int64_t count, const float* queries) {
  scorer_->Score(count, queries, dimension_, scores_.data());
}

}  // namespace weft
