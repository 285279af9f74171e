// AllPass takes a batch forward and back whose sides have all entities as negatives (`all_negs`).
//
// Queries come in blocks, candidates in tiles of table rows: what a product works on stays in the
// second-level cache, and never more than a bounded piece of the scores exists. A loss that needs
// all scores of an edge before any gradient (softmax) goes over the tiles twice. What the first
// time computed is kept for as many candidates as have room; only the others' scores are computed
// again. The gradients of all rows are kept until the step.
#pragma once

#include <cstdint>
#include <span>

#include "services/trainer/fused/scoring.h"
#include "services/trainer/fused/side_rows.h"
#include "services/trainer/fused/step_context.h"

namespace weft {

// Not thread-safe: one a worker.
class AllPass {
 public:
  static constexpr int64_t kBlockQueries = 128;
  static constexpr int64_t kTileCandidates = 192;
  // Of a block's exponentials: 8 MiB.
  static constexpr int64_t kKeptFloats = int64_t{2} << 20;

  // The whole batch. Errors are seen in the loss and the gradients: both are to be tested for
  // finiteness.
  void Run(StepContext* context, const BatchQueries* const batch[2]);

 private:
  // Some queries, against all rows of the side that is corrupted.
  struct Block {
    StepSide* side = nullptr;
    Queries queries;
    std::span<const EntityOffset> positives;
    int64_t first_query = 0;
    LossTile loss;  // without scores and gradients
    RowBlock query_grads;
    bool written = false;  // query_grads
  };
  // Rows [first, first + count) of the table.
  struct Candidates {
    int64_t first = 0;
    RowBlock input;      // with the global embedding
    PreparedRows plain;  // with a static operator, prepared

    int64_t count() const { return plain.rows.rows; }
  };
  // The exponentials of a block's first candidates.
  struct Kept {
    Tile exponentials;         // [candidates, queries]
    float* largest = nullptr;  // of each tile, [queries]: what they are relative to

    bool Has(const Candidates& c) const { return c.first + c.count() <= exponentials.rows; }
    Tile TileOf(const Candidates& c) const { return exponentials.Rows(c.first, c.count()); }
    float* LargestOf(const Candidates& c) const {
      return largest + c.first / kTileCandidates * exponentials.stride;
    }
  };

  void Corrupt(StepContext* context, SideRows* candidates, SideRows* queries);
  void Softmax(StepContext* context, Block* block);
  void OtherLoss(StepContext* context, Block* block);
  Candidates LoadTile(StepContext* context, const StepSide& side, int64_t first);
  void ScoreTile(StepContext* context, const Block& block, const Candidates& candidates,
                 const Tile& scores);
  LossTile LossOfTile(const Block& block) const;
  void BackwardTile(StepContext* context, Block* block, const Candidates& candidates);

  ScoredTile tile_;
};

}  // namespace weft
