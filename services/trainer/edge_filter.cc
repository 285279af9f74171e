#include "services/trainer/edge_filter.h"

#include <algorithm>

namespace weft {

EdgeFilter::EdgeFilter(const RankingQueries& queries)
    : num_queries_(static_cast<int64_t>(queries.queries().size())) {
  for (int64_t i = 0; i < num_queries_; ++i) {
    const RankingQuery& query = queries.queries()[i];
    query_of_[static_cast<int>(query.corrupted)].emplace(Question{query.rel, query.known}, i);
    for (const RankingAnswer& answer : queries.AnswersOf(query)) {
      found_.emplace_back(i, answer.entity);
    }
  }
}

void EdgeFilter::Add(std::span<const IndexedEdge> edges) {
  for (const Side corrupted : kSides) {
    const auto& query_of = query_of_[static_cast<int>(corrupted)];
    if (query_of.empty()) continue;
    for (const IndexedEdge& edge : edges) {
      const auto it = query_of.find(Question{edge.rel, edge.entity(Opposite(corrupted))});
      if (it != query_of.end()) found_.emplace_back(it->second, edge.entity(corrupted));
    }
  }
}

void EdgeFilter::Finish() {
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  begins_.assign(num_queries_ + 1, 0);
  for (const auto& [query, entity] : found_) ++begins_[query + 1];
  for (int64_t i = 0; i < num_queries_; ++i) begins_[i + 1] += begins_[i];
  answers_.reserve(found_.size());
  for (const auto& [query, entity] : found_) answers_.push_back(entity);
  found_ = {};
}

}  // namespace weft
