#include "services/trainer/ranking_queries.h"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

struct Asked {
  CandidateSet candidates;
  RelationTypeId rel;
  Side corrupted;
  int64_t known;
  RankingAnswer answer;

  auto question() const { return std::tie(candidates, rel, corrupted, known); }
};

}  // namespace

CandidateSet CandidateSetOf(const ModelSpec& spec, RelationTypeId rel, Side corrupted) {
  const RelationSpec& relation = spec.relation(rel);
  CandidateSet set;
  set.type = corrupted == Side::kLhs ? relation.lhs : relation.rhs;
  if (!spec.dynamic() && corrupted == Side::kRhs && relation.op != Operator::kNone) {
    set.operator_relation = rel;
  }
  return set;
}

RankingQueries::RankingQueries(const ModelSpec& spec, std::span<const IndexedEdge> edges,
                               std::span<const Side> sides) {
  std::vector<Asked> asked;
  asked.reserve(edges.size() * sides.size());
  for (const Side corrupted : sides) {
    for (size_t i = 0; i < edges.size(); ++i) {
      const IndexedEdge& edge = edges[i];
      if (spec.featurized(edge.rel, corrupted)) continue;
      asked.push_back({CandidateSetOf(spec, edge.rel, corrupted),
                       edge.rel,
                       corrupted,
                       edge.entity(Opposite(corrupted)),
                       {edge.entity(corrupted), static_cast<int64_t>(i)}});
    }
  }
  std::sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return std::tuple_cat(a.question(), std::tie(a.answer.entity, a.answer.edge)) <
           std::tuple_cat(b.question(), std::tie(b.answer.entity, b.answer.edge));
  });
  answers_.reserve(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    const Asked& a = asked[i];
    if (i == 0 || a.question() != asked[i - 1].question()) {
      const auto begin = static_cast<int64_t>(i);
      queries_.push_back({a.candidates, a.rel, a.corrupted, a.known, begin, begin});
    }
    ++queries_.back().answers_end;
    answers_.push_back(a.answer);
  }
}

}  // namespace weft
