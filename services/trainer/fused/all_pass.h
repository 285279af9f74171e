// AllPass takes a batch forward and back whose sides have all entities as negatives (`all_negs`).
//
// The candidates come in tiles of table rows: never more than one tile of scores exists, and a loss
// that needs all scores of an edge before any gradient (softmax) goes over the tiles twice. The
// gradients of all rows are kept until the step.
#pragma once

#include <cstdint>

#include "services/trainer/fused/scoring.h"
#include "services/trainer/fused/side_rows.h"
#include "services/trainer/fused/step_context.h"

namespace weft {

// Not thread-safe: one a worker.
class AllPass {
 public:
  static constexpr int64_t kTileCandidates = 512;

  // The whole batch. Errors are seen in the loss and the gradients: both are to be tested for
  // finiteness.
  void Run(StepContext* context, const BatchQueries* const batch[2]);

 private:
  // The corruption of one side by rows [first, first + count) of its table.
  struct Candidates {
    int64_t first = 0;
    RowBlock input;      // with the global embedding
    PreparedRows plain;  // with a static operator, prepared
  };

  void Corrupt(StepContext* context, SideRows* candidates, SideRows* queries);
  Candidates LoadTile(StepContext* context, const StepSide& side, int64_t first);
  void ScoreTile(StepContext* context, const StepSide& side, const Queries& queries,
                 const Candidates& candidates);
  void CopyScores(StepContext* context, const StepSide& side, int64_t first);
  void BackwardTile(StepContext* context, StepSide* side, const Queries& queries,
                    const Candidates& candidates, bool* queries_written,
                    const RowBlock& query_grads);

  ScoredTile tile_;
};

}  // namespace weft
