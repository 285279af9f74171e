// EdgeFilter knows, for every question of an evaluation, which candidates make a known true edge.
// They are not counted against the edges that are evaluated (the filtered protocol of Bordes et
// al.: "Translating embeddings for modeling multi-relational data", 2013).
//
// It keeps only what answers one of the questions, however many edges it is shown.
// Thread-safety: Add from one thread; constant after Finish.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/trainer/ranking_queries.h"

namespace weft {

class EdgeFilter {
 public:
  // The evaluated edges, which `queries` were made of, are known from the start.
  explicit EdgeFilter(const RankingQueries& queries);

  // Further edges that are true: of training, of validation.
  void Add(std::span<const IndexedEdge> edges);
  // After the last Add: makes KnownAnswers valid.
  void Finish();

  // The entities that truly answer question `query` (its position in queries()), ascending and
  // unique; its own answers are among them.
  std::span<const int64_t> KnownAnswers(int64_t query) const {
    return std::span(answers_).subspan(begins_[query], begins_[query + 1] - begins_[query]);
  }

 private:
  struct Question {
    RelationTypeId rel;
    int64_t known;
    bool operator==(const Question&) const = default;

    template <typename H>
    friend H AbslHashValue(H h, const Question& q) {
      return H::combine(std::move(h), q.rel, q.known);
    }
  };

  int64_t num_queries_ = 0;
  absl::flat_hash_map<Question, int64_t> query_of_[2];  // by corrupted side
  std::vector<std::pair<int64_t, int64_t>> found_;      // (query, entity), until Finish
  std::vector<int64_t> begins_;                         // [queries + 1]
  std::vector<int64_t> answers_;
};

}  // namespace weft
