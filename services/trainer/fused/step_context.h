// StepContext is one batch as the passes of a fused step see it.
#pragma once

#include <cstdint>
#include <span>

#include "services/trainer/batch_step.h"
#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/losses.h"
#include "services/trainer/fused/operator_parameters.h"
#include "services/trainer/fused/operators.h"
#include "services/trainer/fused/row_gradients.h"
#include "services/trainer/fused/scoring.h"

namespace weft {

// One side of the batch.
struct StepSide {
  Side side = Side::kLhs;
  EmbeddingTable table;
  std::span<const EntityOffset> positives;  // [n]
  std::span<const EntityOffset> uniform;    // [c, u]
  NegativeKind kind = NegativeKind::kNone;
  int64_t num_uniform = 0;        // u; 0 unless `kind` has uniform negatives
  const float* global = nullptr;  // the global embedding, padded, and its gradient
  float* global_grads = nullptr;
  OperatorParameters* op = nullptr;   // the operator of this side's rows; nullptr: none
  const int32_t* op_index = nullptr;  // dynamic: [n], slots of the edges' relations
  float* loss = nullptr;              // [n]; of corrupting this side
  int64_t violators = 0;

  bool batch_negatives() const { return kind == NegativeKind::kBatchUniform; }
};

struct StepContext {
  StepContext(const Scoring& scoring, const LossFunction& loss) : scoring(scoring), loss(loss) {}

  Scoring scoring;
  LossFunction loss;
  OperatorPass* operators = nullptr;
  Arena* arena = nullptr;
  RowGradients* rows = nullptr;

  int64_t n = 0;
  int64_t dim = 0;
  int64_t chunk_size = 0;
  StepSide sides[2];               // by Side
  const float* weights = nullptr;  // [n]; relation's times edge's
  bool dynamic_operator = false;   // an operator acts on the positives of the side not corrupted
  bool complex = false;            // complex_diagonal: N3 takes moduli
  float n3 = 0;                    // regularization coefficient
  float n3_positives = 0;          // what each prepared positive counts: n3 times directions
  double reg = 0;
  bool backward = true;
  BatchScores* scores = nullptr;  // what Score wants; nullptr: nothing

  StepSide& side(Side s) { return sides[static_cast<int>(s)]; }

  // The slots of a negative chunk: positives and uniform negatives of the left-hand side, then of
  // the right-hand side.
  int64_t FirstSlot(int64_t chunk) const {
    return chunk * (2 * chunk_size + sides[0].num_uniform + sides[1].num_uniform);
  }
};

}  // namespace weft
