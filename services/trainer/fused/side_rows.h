// SideRows are the rows of one side of a negative chunk on their way to the scores, and their
// gradients on the way back.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/fused/row_gradients.h"
#include "services/trainer/fused/scoring.h"
#include "services/trainer/fused/step_context.h"
#include "services/trainer/kernels/row_block.h"

namespace weft {

// m positives, then u uniform negatives.
struct SideRows {
  StepSide* side = nullptr;
  int64_t first_edge = 0;
  int64_t num_positives = 0;
  SlotRange positive_slots;
  SlotRange negative_slots;

  RowBlock input;      // [m + u], gathered, with the global embedding
  PreparedRows plain;  // [m + u], as candidates: static operator, prepared
  // Where the gradients of candidates are collected before they go to the tables' rows; with
  // `direct` they go there at once, because nothing stands between `plain` and the tables.
  bool direct = false;
  RowBlock grads;        // [m + u]
  bool written = false;  // whether the positives' were written yet; the others' are written once

  // The positives as queries, when that is another thing: with the dynamic operator.
  PreparedRows query;    // [m]
  RowBlock query_grads;  // [m]
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

BatchQueries LoadBatchQueries(StepContext* context, StepSide* side);
// Takes the queries' gradients, of the whole batch, back to the tables' rows.
void FinishBatchQueries(StepContext* context, StepSide* side, const BatchQueries& batch);

// Gathers and prepares the positives of edges [first_edge, first_edge + num_positives). Everything
// lives in the context's arena. `batch`: nullptr unless the queries were computed.
SideRows LoadPositives(StepContext* context, StepSide* side, int64_t first_edge,
                       int64_t num_positives, const BatchQueries* batch);
// Lets the uniform negatives stay where they are, if they are compared as they are. `places` lives
// as long as `rows`.
void KeepInPlace(StepContext* context, SideRows* rows, std::vector<const float*>* places);
// Gathers and prepares uniform negatives first, first + 1, ... of the chunk, unless they stay in
// their place.
void LoadNegatives(StepContext* context, SideRows* rows, int64_t first, int64_t count);

// Clears the gradients of positives and queries to which nothing was written.
void EnsureWritten(SideRows* rows);

// Adds the N3 penalty of the positives and, with a backward pass, takes all gradients back to the
// tables' rows; those of BatchQueries stay where they are.
void FinishSide(StepContext* context, SideRows* rows, const BatchQueries* batch);

}  // namespace weft
