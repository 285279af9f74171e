#include "services/trainer/fused/side_rows.h"

#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {

BatchQueries LoadBatchQueries(StepContext* context, StepSide* side) {
  Arena* arena = context->arena;
  BatchQueries batch;
  batch.input = arena->Rows(context->n, context->dim);
  batch.query = context->scoring.Allocate(arena->Rows(context->n, context->dim), arena);
  batch.grads = arena->Rows(context->n, context->dim);
  GatherRows(side->table, side->positives, side->global, batch.input);
  context->operators->Forward(*side->op, side->op_index, batch.input, batch.query.rows);
  context->scoring.Prepare(batch.query);
  return batch;
}

SideRows LoadSide(StepContext* context, StepSide* side, int64_t first_edge, int64_t num_positives,
                  std::span<const EntityOffset> uniform, int64_t first_slot,
                  const BatchQueries* batch) {
  Arena* arena = context->arena;
  const Scoring& scoring = context->scoring;
  const int64_t num_rows = num_positives + static_cast<int64_t>(uniform.size());
  SideRows rows;
  rows.side = side;
  rows.first_edge = first_edge;
  rows.first_slot = first_slot;
  rows.num_positives = num_positives;
  rows.grads = context->rows->Slots(first_slot, num_rows);

  rows.input = arena->Rows(num_rows, context->dim);
  GatherRows(side->table, side->positives.subspan(first_edge, num_positives), side->global,
             rows.input.Slice(0, num_positives));
  GatherRows(side->table, uniform, side->global,
             rows.input.Slice(num_positives, num_rows - num_positives));

  const bool dynamic = side->op != nullptr && context->dynamic_operator;
  RowBlock plain = rows.input;
  if (side->op != nullptr && !dynamic) {
    plain = arena->Rows(num_rows, context->dim);
    context->operators->Forward(*side->op, nullptr, rows.input, plain);
  } else if (dynamic && scoring.normalizes()) {
    // The operator wants the rows as they were.
    plain = arena->Rows(num_rows, context->dim);
    CopyRows(rows.input, plain);
  }
  rows.plain = scoring.Allocate(plain, arena);
  scoring.Prepare(rows.plain);

  if (batch != nullptr) {
    rows.query = batch->query.Slice(first_edge, num_positives);
    rows.query_grads = batch->grads.Slice(first_edge, num_positives);
  } else if (dynamic) {
    rows.query = scoring.Allocate(arena->Rows(num_positives, context->dim), arena);
    rows.query_grads = arena->Rows(num_positives, context->dim);
    context->operators->Forward(*side->op, side->op_index + first_edge,
                                rows.input.Slice(0, num_positives), rows.query.rows);
    scoring.Prepare(rows.query);
  }
  return rows;
}

void EnsureWritten(SideRows* rows) {
  if (!rows->written) ZeroRows(rows->positive_grads());
  if (rows->has_query() && !rows->query_written) ZeroRows(rows->query_grads);
  rows->written = rows->query_written = true;
}

void AddRegularization(StepContext* context, SideRows* rows) {
  if (context->n3 == 0) return;
  const bool complex = context->complex;
  const auto coef = static_cast<double>(context->n3);
  // Without a backward pass there are no gradients to add to.
  const bool backward = context->backward;
  if (!rows->has_query()) {
    const double times = static_cast<double>(context->n3_positives) / coef;
    context->reg += coef * times *
                    AddCubedNorm(rows->positives().rows, complex,
                                 backward ? context->n3_positives : 0, rows->positive_grads());
    return;
  }
  context->reg += coef * AddCubedNorm(rows->positives().rows, complex, backward ? context->n3 : 0,
                                      rows->positive_grads());
  context->reg +=
      coef * AddCubedNorm(rows->query.rows, complex, backward ? context->n3 : 0, rows->query_grads);
}

void BackwardCandidates(StepContext* context, SideRows* rows) {
  context->scoring.PrepareBackward(rows->plain, rows->grads);
  StepSide* side = rows->side;
  if (side->op != nullptr && !context->dynamic_operator) {
    context->operators->Backward(side->op, nullptr, rows->input, rows->grads);
  }
}

void BackwardQueries(StepContext* context, SideRows* rows) {
  if (!rows->has_query()) return;
  StepSide* side = rows->side;
  context->scoring.PrepareBackward(rows->query, rows->query_grads);
  context->operators->Backward(side->op, side->op_index + rows->first_edge,
                               rows->input.Slice(0, rows->num_positives), rows->query_grads);
  AddRows(rows->query_grads, rows->positive_grads());
}

void BackwardBatchQueries(StepContext* context, StepSide* side, const BatchQueries& batch) {
  context->scoring.PrepareBackward(batch.query, batch.grads);
  context->operators->Backward(side->op, side->op_index, batch.input, batch.grads);
}

void FinishSlots(StepContext* context, const SideRows& rows) {
  context->rows->FinishSlots(rows.first_slot, rows.grads.rows, rows.side->global_grads);
}

}  // namespace weft
