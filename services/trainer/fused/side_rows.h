// SideRows are the rows of one side of a negative chunk on their way to the scores, and their
// gradients on the way back.
#pragma once

#include <cstdint>

#include "services/trainer/fused/scoring.h"
#include "services/trainer/fused/step_context.h"
#include "services/trainer/kernels/row_block.h"

namespace weft {

// m positives, then u uniform negatives.
struct SideRows {
  StepSide* side = nullptr;
  int64_t first_edge = 0;
  int64_t first_slot = 0;
  int64_t num_positives = 0;

  RowBlock input;      // [m + u], gathered, with the global embedding
  PreparedRows plain;  // [m + u], as candidates: static operator, prepared
  RowBlock grads;      // [m + u], slots of RowGradients; of `plain`, in the end of `input`
  // The positives as queries, when that is another thing: with the dynamic operator.
  PreparedRows query;    // [m]
  RowBlock query_grads;  // [m]

  // Whether something was written to the gradients of the positives yet; those of uniform negatives
  // are written once.
  bool written = false;
  bool query_written = false;

  PreparedRows positives() const { return plain.Slice(0, num_positives); }
  PreparedRows negatives() const {
    return plain.Slice(num_positives, plain.rows.rows - num_positives);
  }
  RowBlock positive_grads() const { return grads.Slice(0, num_positives); }
  RowBlock negative_grads() const { return grads.Slice(num_positives, grads.rows - num_positives); }

  // What the other side's candidates are scored against.
  bool has_query() const { return query.rows.data != nullptr; }
  PreparedRows queries() const { return has_query() ? query : positives(); }
  RowBlock gradients_of_queries() const { return has_query() ? query_grads : positive_grads(); }
  bool& queries_written() { return has_query() ? query_written : written; }
};

// All positives of one side as queries of a dynamic linear operator: computed once for the whole
// batch, so that a relation's edges are multiplied together.
struct BatchQueries {
  RowBlock input;  // [n]
  PreparedRows query;
  RowBlock grads;  // [n]
};

// Computes the queries of `side` for the whole batch.
BatchQueries LoadBatchQueries(StepContext* context, StepSide* side);

// Gathers and prepares edges [first_edge, first_edge + num_positives) and the uniform negatives
// `uniform` of `side`. Everything lives in the context's arena. `batch`: nullptr unless computed.
SideRows LoadSide(StepContext* context, StepSide* side, int64_t first_edge, int64_t num_positives,
                  std::span<const EntityOffset> uniform, int64_t first_slot,
                  const BatchQueries* batch);

// Clears the gradients of positives (and queries) to which nothing was written.
void EnsureWritten(SideRows* rows);

// The N3 penalty of the positives: adds to their gradients and to the context's.
void AddRegularization(StepContext* context, SideRows* rows);

// Takes the gradients from prepared rows back to the table's rows and hands them over. With
// BatchQueries, the queries' part is added by FinishBatchQueries before, for which `rows` of all
// chunks must be finished afterwards.
void BackwardCandidates(StepContext* context, SideRows* rows);
void BackwardQueries(StepContext* context, SideRows* rows);
void BackwardBatchQueries(StepContext* context, StepSide* side, const BatchQueries& batch);
void FinishSlots(StepContext* context, const SideRows& rows);

}  // namespace weft
