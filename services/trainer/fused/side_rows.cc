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

void FinishBatchQueries(StepContext* context, StepSide* side, const BatchQueries& batch) {
  context->scoring.PrepareBackward(batch.query, batch.grads);
  context->operators->Backward(side->op, side->op_index, batch.input, batch.grads);
  for (int64_t chunk = 0; chunk < context->num_chunks(); ++chunk) {
    const int64_t first = chunk * context->chunk_size;
    const SlotRange slots = context->PositiveSlots(side->side, chunk);
    context->rows->Add(slots.first, batch.grads.Slice(first, slots.count));
  }
}

namespace {

// Rows [first, first + count) from `input` to what is compared.
void PrepareCandidates(StepContext* context, SideRows* rows, int64_t first, int64_t count) {
  const RowBlock input = rows->input.Slice(first, count);
  const PreparedRows plain = rows->plain.Slice(first, count);
  if (context->HasStaticOperator(*rows->side)) {
    context->operators->Forward(*rows->side->op, nullptr, input, plain.rows);
  } else if (input.data != plain.rows.data) {
    CopyRows(input, plain.rows);
  }
  context->scoring.Prepare(plain);
}

// Whether the products that give this side's gradients may add to the tables' rows: when nothing is
// to be done with their results, and each row has its own product.
bool IsDirect(const StepContext& context, const StepSide& side, const BatchQueries* batch) {
  const Scoring& scoring = context.scoring;
  if (!context.dynamic_operator && !context.transposed()) return false;
  if (!side.batch_negatives() || scoring.normalizes() || scoring.distance() || scoring.bias() ||
      context.HasStaticOperator(side)) {
    return false;
  }
  // The positives' N3 then goes with the queries' gradients.
  return context.n3 == 0 || (context.dynamic_operator && batch == nullptr);
}

}  // namespace

SideRows LoadPositives(StepContext* context, StepSide* side, int64_t first_edge,
                       int64_t num_positives, const BatchQueries* batch) {
  Arena* arena = context->arena;
  const Scoring& scoring = context->scoring;
  const int64_t num_rows = num_positives + side->num_uniform;
  const int64_t chunk = first_edge / context->chunk_size;
  SideRows rows;
  rows.side = side;
  rows.first_edge = first_edge;
  rows.num_positives = num_positives;
  rows.positive_slots = context->PositiveSlots(side->side, chunk);
  rows.negative_slots = context->NegativeSlots(side->side, chunk);
  rows.direct = IsDirect(*context, *side, batch);
  if (context->backward && !rows.direct) rows.grads = arena->Rows(num_rows, context->dim);

  rows.input = arena->Rows(num_rows, context->dim);
  const bool dynamic = side->op != nullptr && context->dynamic_operator;
  // A dynamic operator wants the rows as they were before the comparator's preparation.
  const bool in_place = !context->HasStaticOperator(*side) && !(dynamic && scoring.normalizes());
  rows.plain = scoring.Allocate(in_place ? rows.input : arena->Rows(num_rows, context->dim), arena);
  const RowBlock input = rows.input.Slice(0, num_positives);
  GatherRows(side->table, side->positives.subspan(first_edge, num_positives), side->global, input);
  PrepareCandidates(context, &rows, 0, num_positives);

  if (batch != nullptr) {
    rows.query = batch->query.Slice(first_edge, num_positives);
    rows.query_grads = batch->grads.Slice(first_edge, num_positives);
  } else if (dynamic) {
    rows.query = scoring.Allocate(arena->Rows(num_positives, context->dim), arena);
    rows.query_grads = arena->Rows(num_positives, context->dim);
    context->operators->Forward(*side->op, side->op_index + first_edge, input, rows.query.rows);
    scoring.Prepare(rows.query);
  }
  return rows;
}

void KeepInPlace(StepContext* context, SideRows* rows, std::vector<const float*>* places) {
  const StepSide& side = *rows->side;
  if (!context->scoring.plain() || side.global != nullptr || context->HasStaticOperator(side) ||
      !CanReadInPlace(context->dim)) {
    return;
  }
  places->clear();
  for (int64_t i = 0; i < rows->num_positives; ++i) places->push_back(rows->plain.rows.row(i));
  const float* const* negatives = context->slot_rows + rows->negative_slots.first;
  places->insert(places->end(), negatives, negatives + rows->negative_slots.count);
  rows->plain.places = places->data();
}

void LoadNegatives(StepContext* context, SideRows* rows, int64_t first, int64_t count) {
  if (count == 0 || rows->plain.places != nullptr) return;
  const StepSide& side = *rows->side;
  const int64_t chunk = rows->first_edge / context->chunk_size;
  GatherRows(side.table, side.uniform.subspan(chunk * side.num_uniform + first, count), side.global,
             rows->input.Slice(rows->num_positives + first, count));
  PrepareCandidates(context, rows, rows->num_positives + first, count);
}

void EnsureWritten(SideRows* rows) {
  if (!rows->written && !rows->direct) ZeroRows(rows->positive_grads());
  if (rows->has_query() && !rows->query_written) ZeroRows(rows->query_grads);
  rows->written = rows->query_written = true;
}

namespace {

// The N3 penalty of `x`, counted `times` over; adds its gradient unless there is no backward pass.
void Regularize(StepContext* context, const PreparedRows& x, float times, const RowBlock& grads) {
  if (context->n3 == 0) return;
  const float coef = context->n3 * times;
  context->reg += static_cast<double>(coef) * AddCubedNorm(x.rows, context->complex,
                                                           context->backward ? coef : 0,
                                                           context->backward ? grads : x.rows);
}

}  // namespace

void FinishSide(StepContext* context, SideRows* rows, const BatchQueries* batch) {
  const float times = static_cast<float>(context->directions_of_positives);
  if (rows->has_query()) Regularize(context, rows->query, 1, rows->query_grads);
  if (!context->backward) {
    Regularize(context, rows->positives(), times, {});
    return;
  }
  EnsureWritten(rows);
  const Scoring& scoring = context->scoring;
  OperatorParameters* op = rows->side->op;
  if (!rows->direct) {
    Regularize(context, rows->positives(), times, rows->positive_grads());
    scoring.PrepareBackward(rows->plain, rows->grads);
    if (context->HasStaticOperator(*rows->side)) {
      context->operators->Backward(op, nullptr, rows->input, rows->grads);
    }
    context->rows->Add(rows->positive_slots.first, rows->positive_grads());
    context->rows->Add(rows->negative_slots.first, rows->negative_grads());
  }
  if (!rows->has_query() || batch != nullptr) return;
  scoring.PrepareBackward(rows->query, rows->query_grads);
  context->operators->Backward(op, rows->side->op_index + rows->first_edge,
                               rows->input.Slice(0, rows->num_positives), rows->query_grads);
  if (rows->direct) Regularize(context, rows->positives(), 1, rows->query_grads);
  context->rows->Add(rows->positive_slots.first, rows->query_grads);
}

}  // namespace weft
