// ChunkPass takes one negative chunk forward to its scores and loss, and back to the gradients of
// its rows, for sides whose negatives are of the batch, uniform, or none.
//
// When both sides have batch negatives and are compared as they are (static relations, or no
// operator), the two sides' batch scores are one matrix and its transpose. Then it is computed
// once, and its two gradients are added before the products that take them back: a quarter fewer
// operations, with the same result.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/fused/scoring.h"
#include "services/trainer/fused/side_rows.h"
#include "services/trainer/fused/step_context.h"

namespace weft {

// Not thread-safe: one a worker.
class ChunkPass {
 public:
  // One chunk. `batch`: by side, nullptr unless the queries were computed for the whole batch; then
  // the caller finishes them. Errors are seen in the loss and the gradients: both are to be tested
  // for finiteness.
  void Run(StepContext* context, int64_t chunk, const BatchQueries* const batch[2]);

 private:
  // The corruption of one side.
  struct Direction {
    SideRows* candidates_side = nullptr;
    SideRows* queries_side = nullptr;
    Queries queries;
    PreparedRows candidates;    // with batch negatives, the positives first
    int64_t num_negatives = 0;  // with padding in the last chunk
    bool batch = false;
    ScoredTile tile;
    float* pos = nullptr;       // [m]
    float* pos_grad = nullptr;  // [m]
  };

  void Begin(StepContext* context, SideRows* candidates, SideRows* queries, Direction* direction);
  void RunOneByOne(StepContext* context, int64_t chunk, SideRows sides[2]);
  void RunTransposed(StepContext* context, int64_t chunk, SideRows sides[2]);
  // Gathers the uniform negatives and scores them; the positives too, if they are candidates and
  // `whole`.
  void Score(StepContext* context, bool whole, Direction* direction);
  void ScorePositives(StepContext* context, Direction* direction);
  void Lose(StepContext* context, Direction* direction);
  void CopyScores(StepContext* context, const Direction& direction);
  void Backward(StepContext* context, Direction* direction);
  void BackwardCandidates(StepContext* context, Direction* direction);
  void BackwardTransposed(StepContext* context, Direction* lhs, Direction* rhs);

  Direction directions_[2];              // by corrupted side; kept for their vectors
  std::vector<const float*> places_[2];  // by side: of the candidates that stay in their table
};

}  // namespace weft
