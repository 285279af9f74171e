// Scoring compares prepared rows: it prepares them, scores pairs and whole tiles, and takes the
// gradients of scores back to the rows.
//
// dot and cos are inner products of prepared rows. l2 and squared_l2 go through inner products and
// norms as well, except for close pairs, where that difference cancels: their scores and gradients
// are computed from the rows themselves. With a bias, coordinate 0 of both rows is added to the
// score, and everything else starts at coordinate 1.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/fused/arena.h"
#include "services/trainer/kernels/block_gemm.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/kernels/tile_ops.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Rows ready to be compared, with what the comparator keeps of each.
struct PreparedRows {
  RowBlock rows;
  float* norms = nullptr;     // l2, squared_l2: squared 2-norms
  float* inverses = nullptr;  // cos: inverse norms of the rows before
  float* biases = nullptr;    // with a bias: coordinate 0
  // Where the rows are, if they stand in tables rather than in `rows`.
  const float* const* places = nullptr;

  PreparedRows Slice(int64_t first, int64_t count) const {
    return {rows.Slice(first, count), norms == nullptr ? nullptr : norms + first,
            inverses == nullptr ? nullptr : inverses + first,
            biases == nullptr ? nullptr : biases + first,
            places == nullptr ? nullptr : places + first};
  }
};

// Rows that candidates are scored against, and the same transposed, as a matrix product wants them.
struct Queries {
  PreparedRows prepared;
  float* transposed = nullptr;  // [dim - skip, rows]
  int64_t stride = 0;

  int64_t size() const { return prepared.rows.rows; }
};

// Scores of candidates against queries, and later their gradients.
struct ScoredTile {
  Tile scores;                  // [candidates, queries]
  Tile grads;                   // what the loss gives; the same tile
  Tile distances;               // l2: scores without the bias
  std::vector<TilePair> close;  // l2, squared_l2
  std::vector<float> close_weights;
  // The last of `close` are another tile's, seen from its other side: only kept out of the sums.
  int64_t num_mirrored = 0;
  // Sums over the gradients, with a bias, and over the weights of distances: by row and by column.
  float* row_sums = nullptr;
  float* column_sums = nullptr;
  float* row_weights = nullptr;
  float* column_weights = nullptr;
};

// Where a product puts gradients of rows: into a block, or to rows that stand anywhere. The latter
// only where nothing is to be done with them afterwards: dot products without a bias.
struct GradientTarget {
  RowBlock block;
  bool accumulate = false;
  ScatteredRows scattered;
};

// Not thread-safe: one a worker.
class Scoring {
 public:
  Scoring(Comparator comparator, bool bias) : comparator_(comparator), skip_(bias ? 1 : 0) {}

  bool distance() const {
    return comparator_ == Comparator::kL2 || comparator_ == Comparator::kSquaredL2;
  }
  bool bias() const { return skip_ == 1; }
  // Whether preparation changes the rows.
  bool normalizes() const { return comparator_ == Comparator::kCos; }
  // Whether candidates are compared just as they are: they may stay in their table then.
  bool plain() const { return comparator_ == Comparator::kDot && !bias(); }
  // What the matrix products prefetch; nullptr: nothing.
  void set_prefetch(PrefetchQueue* queue) { prefetch_ = queue; }
  // Faster: the last one or two queries of a tile may be scored in another order of additions. A
  // query's scores stay comparable with each other, but not to the bit with the same query's in
  // another place, as ranking and evaluation want them.
  void set_queries_stand_alone() { queries_stand_alone_ = true; }

  // Space for what is kept of `rows`.
  PreparedRows Allocate(const RowBlock& rows, Arena* arena) const;
  // Prepares rows in place.
  void Prepare(const PreparedRows& x) const;
  // Gradients of prepared rows into gradients of the rows before, in place.
  void PrepareBackward(const PreparedRows& x, const RowBlock& grads) const;

  // scores: [a.rows], of a_i and b_i.
  void ScorePairs(const PreparedRows& a, const PreparedRows& b, float* scores) const;
  // Adds to the gradients of both rows.
  void ScorePairsBackward(const PreparedRows& a, const PreparedRows& b, const float* score_grads,
                          const RowBlock& a_grads, const RowBlock& b_grads) const;

  Queries MakeQueries(const PreparedRows& rows, Arena* arena) const;
  // Space for what belongs to `scores`, themselves allocated: a tile of candidates and queries.
  void AllocateTile(const Tile& scores, Arena* arena, ScoredTile* tile) const;
  // Scores `candidates` against all queries, into rows first, first + 1, ... of the tile.
  void ScoreRows(const PreparedRows& candidates, const Queries& queries, int64_t first,
                 ScoredTile* tile) const;

  // Turns tile->grads, gradients of scores, into what the products below need. The gradients of
  // close pairs are taken out of the tile (AddClosePairs).
  void BeginBackward(ScoredTile* tile) const;
  // The gradients of the queries: the transposed tile times its candidates.
  void QueryGradients(const ScoredTile& tile, const PreparedRows& candidates,
                      const Queries& queries, const GradientTarget& target) const;
  // The gradients of candidates that are the tile's rows first, first + 1, ...: these rows times
  // the queries.
  void CandidateGradients(const ScoredTile& tile, const PreparedRows& candidates,
                          const Queries& queries, int64_t first,
                          const GradientTarget& target) const;
  // Adds what BeginBackward took out; with all candidates of the tile.
  void AddClosePairs(const ScoredTile& tile, const PreparedRows& candidates, const Queries& queries,
                     const RowBlock& candidate_grads, const RowBlock& query_grads) const;

 private:
  Comparator comparator_;
  int64_t skip_;
  PrefetchQueue* prefetch_ = nullptr;
  bool queries_stand_alone_ = false;
};

}  // namespace weft
