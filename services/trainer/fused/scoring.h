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
#include "services/trainer/kernels/gemm.h"
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

  PreparedRows Slice(int64_t first, int64_t count) const {
    return {rows.Slice(first, count), norms == nullptr ? nullptr : norms + first,
            inverses == nullptr ? nullptr : inverses + first,
            biases == nullptr ? nullptr : biases + first};
  }
};

// A tile of scores of queries against candidates, and later their gradients.
struct ScoredTile {
  Tile scores;
  Tile grads;                   // what the loss gives; may be `scores` itself except for distances
  Tile distances;               // l2: scores without the bias
  std::vector<TilePair> close;  // l2, squared_l2
  std::vector<float> close_weights;
  // The last of `close` are another tile's, seen from its other side: only kept out of the sums.
  int64_t num_mirrored = 0;
  float* row_sums = nullptr;  // of the gradients; with a bias
  float* column_sums = nullptr;
  float* row_weights = nullptr;  // sums of the distances' weights
  float* column_weights = nullptr;
};

// Not thread-safe: one a worker.
class Scoring {
 public:
  Scoring(Comparator comparator, bool bias, Gemm* gemm)
      : comparator_(comparator), skip_(bias ? 1 : 0), gemm_(gemm) {}

  bool distance() const {
    return comparator_ == Comparator::kL2 || comparator_ == Comparator::kSquaredL2;
  }
  bool bias() const { return skip_ == 1; }
  // Whether preparation changes the rows.
  bool normalizes() const { return comparator_ == Comparator::kCos; }

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

  // A tile for a.rows x b.rows scores.
  void AllocateTile(int64_t queries, int64_t candidates, Arena* arena, ScoredTile* tile) const;
  // Scores of all `a` against `b`, into columns [column, column + b.rows) of the tile.
  void ScoreColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                    ScoredTile* tile) const;
  // The two halves of ScoreColumns: inner products, and what makes scores of them.
  void MultiplyColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                       ScoredTile* tile) const;
  void FinishColumns(const PreparedRows& a, const PreparedRows& b, int64_t column,
                     ScoredTile* tile) const;

  // Turns tile->grads, gradients of scores, into what the products below need. The gradients of
  // close pairs are taken out of the tile (AddClosePairs).
  void BeginBackward(ScoredTile* tile) const;
  // grads of the queries = (or +=) the tile times the candidates b.
  void QueryGradients(const ScoredTile& tile, const PreparedRows& a, const PreparedRows& b,
                      bool accumulate, const RowBlock& grads) const;
  // grads of the candidates b, which are columns [column, column + b.rows) of the tile.
  void CandidateGradients(const ScoredTile& tile, const PreparedRows& a, const PreparedRows& b,
                          int64_t column, bool accumulate, const RowBlock& grads) const;
  // Adds what BeginBackward took out; b: all candidates of the tile.
  void AddClosePairs(const ScoredTile& tile, const PreparedRows& a, const PreparedRows& b,
                     const RowBlock& a_grads, const RowBlock& b_grads) const;

 private:
  Comparator comparator_;
  int64_t skip_;
  Gemm* gemm_;
};

}  // namespace weft
