// RankingQueries are the questions that an evaluation asks: "which entity completes (?, rel, rhs)"
// and "(lhs, rel, ?)" for every evaluated edge. Edges that share a question are answered by one
// scoring of the candidates, so each question stands here once, with all of its edges.
//
// Entities are numbered through their type's partitions (entity_index.h).
// Thread-safety: constant after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/types.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

struct IndexedEdge {
  int64_t lhs = 0;
  int64_t rhs = 0;
  RelationTypeId rel = 0;

  int64_t entity(Side side) const { return side == Side::kLhs ? lhs : rhs; }
  bool operator==(const IndexedEdge&) const = default;
};

// The candidates of a question, in the form in which they are compared. Questions of one set are
// scored against the same vectors.
struct CandidateSet {
  EntityTypeId type = 0;
  // The relation whose operator is applied to the candidates; -1: none (candidates of the left-hand
  // side, of operator `none`, and all in dynamic mode).
  RelationTypeId operator_relation = -1;

  auto operator<=>(const CandidateSet&) const = default;
};

// The set for candidates of side `corrupted` of relation `rel`.
CandidateSet CandidateSetOf(const ModelSpec& spec, RelationTypeId rel, Side corrupted);

struct RankingQuery {
  CandidateSet candidates;
  RelationTypeId rel = 0;
  Side corrupted = Side::kRhs;  // the side that is asked for
  int64_t known = 0;            // the entity on the other side
  // Its answers: [answers_begin, answers_end) of RankingQueries::answers().
  int64_t answers_begin = 0;
  int64_t answers_end = 0;

  int64_t num_answers() const { return answers_end - answers_begin; }
};

// An evaluated edge, seen from the question it answers.
struct RankingAnswer {
  int64_t entity = 0;  // the edge's own entity on the corrupted side
  int64_t edge = 0;    // its position among the evaluated edges
};

class RankingQueries {
 public:
  // The questions of `edges` with the sides of `sides` corrupted. Nobody asks for a featurized
  // side: its entities cannot be listed.
  RankingQueries(const ModelSpec& spec, std::span<const IndexedEdge> edges,
                 std::span<const Side> sides);

  // Ascending by candidate set, then relation, side and entity: independent of the order of edges.
  const std::vector<RankingQuery>& queries() const { return queries_; }
  // Grouped by question; ascending by entity within one.
  const std::vector<RankingAnswer>& answers() const { return answers_; }
  std::span<const RankingAnswer> AnswersOf(const RankingQuery& query) const {
    return std::span(answers_).subspan(query.answers_begin, query.num_answers());
  }

 private:
  std::vector<RankingQuery> queries_;
  std::vector<RankingAnswer> answers_;
};

}  // namespace weft
