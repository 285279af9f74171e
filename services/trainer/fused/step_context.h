// StepContext is one batch as the passes of a fused step see it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

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
  int64_t num_uniform = 0;            // u; 0 unless `kind` has uniform negatives
  const float* global = nullptr;      // the global embedding, padded; nullptr: none
  float* global_grads = nullptr;      // the same; what they are added to
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
  // How often the penalty counts a prepared positive: once for each direction that has it.
  int directions_of_positives = 1;
  double reg = 0;
  bool backward = true;
  // Rows make their step after the last chunk that has them, rather than after the batch.
  bool steps = false;
  float lr = 0;
  BatchScores* scores = nullptr;  // what Score wants; nullptr: nothing

  const float* const* slot_rows = nullptr;  // [slots]; where the rows are in the tables
  PrefetchQueue prefetch;

  // Whether one matrix of scores serves both directions (chunk_pass.h).
  bool transposed() const {
    return sides[0].batch_negatives() && sides[1].batch_negatives() && !dynamic_operator;
  }
  StepSide& side(Side s) { return sides[static_cast<int>(s)]; }
  // Static operators act on all rows of their side, dynamic ones on queries only.
  bool HasStaticOperator(const StepSide& s) const { return s.op != nullptr && !dynamic_operator; }

  int64_t num_chunks() const { return (n + chunk_size - 1) / chunk_size; }
  int64_t PositivesOfChunk(int64_t chunk) const {
    return std::min(chunk_size, n - chunk * chunk_size);
  }

  // The slots of a negative chunk, in the order in which their rows are gathered: positives of the
  // left- and the right-hand side, then uniform negatives of both.
  int64_t FirstSlot(int64_t chunk) const {
    return std::min(2 * chunk * chunk_size, 2 * n) +
           chunk * (sides[0].num_uniform + sides[1].num_uniform);
  }
  SlotRange PositiveSlots(Side s, int64_t chunk) const {
    const int64_t m = PositivesOfChunk(chunk);
    return {FirstSlot(chunk) + (s == Side::kLhs ? 0 : m), m};
  }
  SlotRange NegativeSlots(Side s, int64_t chunk) const {
    const int64_t first = FirstSlot(chunk) + 2 * PositivesOfChunk(chunk);
    return {first + (s == Side::kLhs ? 0 : sides[0].num_uniform),
            sides[static_cast<int>(s)].num_uniform};
  }

  // Lets the matrix products that follow, of about `flops` operations, ask for the rows of slots
  // [first, end).
  void Prefetch(int64_t first, int64_t end, double flops) { prefetch.Begin(first, end, flops); }
  void StopPrefetch() { prefetch.next = prefetch.end; }
};

}  // namespace weft
