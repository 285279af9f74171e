#include "services/trainer/fused/fused_batch_step.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/trainer/fused/all_pass.h"
#include "services/trainer/fused/batch_parameters.h"
#include "services/trainer/fused/built_in.h"
#include "services/trainer/fused/chunk_pass.h"
#include "services/trainer/fused/feature_pool.h"
#include "services/trainer/fused/step_context.h"
#include "services/trainer/kernels/cpu.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

class FusedBatchStep final : public BatchStep {
 public:
  FusedBatchStep(const ModelSpec& spec, ParameterSet* all, BatchParameters parameters)
      : spec_(spec), all_parameters_(all), parameters_(std::move(parameters)) {}

  absl::StatusOr<BatchStats> Train(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables) override;
  absl::StatusOr<BatchStats> Score(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables, BatchScores* scores) override;
  absl::StatusOr<BatchGradients> Gradients(const EdgeBatch& batch,
                                           const SampledNegatives& negatives,
                                           const BatchTables& tables) override;

 private:
  enum class Until { kScores, kGradients, kStep };
  // Afterwards rows_ and parameters_ have the gradients, if asked for; with context_->steps the
  // rows have made their step.
  // Errors: OutOfRange when a score or gradient is not finite.
  absl::StatusOr<BatchStats> Run(EdgeBatch batch, const SampledNegatives& negatives,
                                 BatchTables tables, Until until, BatchScores* scores);
  void Begin(const EdgeBatch& batch, const SampledNegatives& negatives, const BatchTables& tables);
  StepSide BeginSide(Side side, const EdgeBatch& batch, const SampledNegatives& negatives,
                     const BatchTables& tables);
  void AssignRows(const BatchTables& tables);
  void AssignSlots(const StepSide& side, SlotRange slots, std::span<const EntityOffset> offsets) {
    rows_.Assign(side.side, slots.first, offsets);
    RowAddresses(side.table, offsets, addresses_.data() + slots.first);
  }
  void SumGlobalGradients();
  void RunPasses();
  void RegularizeOperators();
  absl::StatusOr<BatchStats> CollectStats() const;
  absl::Status CheckGradients();
  absl::Status NotFinite(const std::string& what, int64_t edge) const;

  bool all_negatives() const {
    return context_->sides[0].kind == NegativeKind::kAll ||
           context_->sides[1].kind == NegativeKind::kAll;
  }

  const ModelSpec spec_;
  ParameterSet* const all_parameters_;
  BatchParameters parameters_;
  Gemm gemm_;
  Arena arena_;
  OperatorPass operators_{&gemm_, &arena_};
  RowGradients rows_;
  FeaturePool features_;
  ChunkPass chunk_pass_;
  AllPass all_pass_;

  // The batch in work.
  std::optional<StepContext> context_;
  RelationTypeId relation_ = 0;             // static: of all edges
  std::span<const RelationTypeId> rels_;    // dynamic: of each
  std::vector<int32_t> operator_slots_[2];  // by side; dynamic: of each edge
  std::vector<const float*> addresses_;     // by slot
  std::vector<int64_t> regularized_;        // how often the penalty counts an operator's row
  std::vector<EntityOffset> offsets_;
};

StepSide FusedBatchStep::BeginSide(Side which, const EdgeBatch& batch,
                                   const SampledNegatives& negatives, const BatchTables& tables) {
  const bool lhs = which == Side::kLhs;
  StepSide side;
  side.side = which;
  side.table = lhs ? tables.lhs : tables.rhs;
  side.positives = lhs ? batch.lhs : batch.rhs;
  side.kind = spec_.negatives(relation_, which);
  side.num_uniform = spec_.UniformNegatives(relation_, which);
  if (side.num_uniform > 0) {
    side.uniform = lhs ? negatives.lhs : negatives.rhs;
    WEFT_CHECK(static_cast<int64_t>(side.uniform.size()) ==
               context_->num_chunks() * side.num_uniform);
  }
  const RelationSpec& relation = spec_.relation(relation_);
  const GlobalRow global = parameters_.UseGlobal(lhs ? relation.lhs : relation.rhs, &arena_);
  side.global = global.values;
  side.global_grads = global.grads;
  side.loss = arena_.Floats(context_->n);
  std::fill_n(side.loss, context_->n, 0.0f);
  std::vector<int32_t>& slots = operator_slots_[static_cast<int>(which)];
  side.op = parameters_.UseOperator(which, relation_, batch.rel, &slots);
  if (spec_.dynamic()) side.op_index = slots.data();
  return side;
}

void FusedBatchStep::AssignRows(const BatchTables& tables) {
  StepContext& c = *context_;
  const int64_t num_slots = c.FirstSlot(c.num_chunks());
  addresses_.resize(static_cast<size_t>(num_slots));
  rows_.Begin(tables, num_slots, c.sides[0].kind == NegativeKind::kAll,
              c.sides[1].kind == NegativeKind::kAll);
  for (int64_t chunk = 0; chunk < c.num_chunks(); ++chunk) {
    for (const StepSide& side : c.sides) {
      const SlotRange positives = c.PositiveSlots(side.side, chunk);
      const SlotRange negatives = c.NegativeSlots(side.side, chunk);
      AssignSlots(side, positives, side.positives.subspan(chunk * c.chunk_size, positives.count));
      AssignSlots(side, negatives, side.uniform.subspan(chunk * side.num_uniform, negatives.count));
    }
    // While the other chunks are assigned, memory brings the first one's rows.
    if (chunk > 0) continue;
    for (const StepSide& side : c.sides) {
      PrefetchRows(side.table, side.positives.first(c.PositivesOfChunk(0)));
      PrefetchRows(side.table, side.uniform.first(side.num_uniform));
    }
  }
  rows_.AllocateRows(c.chunk_size + std::max(c.sides[0].num_uniform, c.sides[1].num_uniform),
                     &arena_);
  c.slot_rows = c.prefetch.rows = addresses_.data();
  c.prefetch.row_floats = c.dim;
  if (spec_.max_norm <= 0) return;
  for (const Side side : kSides) {
    // Of pooled rows, the features' have been limited.
    if (features_.pooled(side) || (side == Side::kRhs && rows_.shared_table())) continue;
    offsets_.clear();
    for (const RowStep& row : rows_.rows(side)) offsets_.push_back(row.offset);
    LimitRowNorms(c.side(side).table, offsets_, spec_.max_norm);
  }
}

void FusedBatchStep::Begin(const EdgeBatch& batch, const SampledNegatives& negatives,
                           const BatchTables& tables) {
  StepContext& c = *context_;
  const RelationSpec& relation = spec_.relation(relation_);
  c.dynamic_operator = spec_.dynamic() && relation.op != Operator::kNone;
  c.complex = relation.op == Operator::kComplexDiagonal;
  c.n3 = static_cast<float>(spec_.regularization_coef);
  // Without a dynamic operator both directions have the same positives.
  c.directions_of_positives = spec_.dynamic() && !c.dynamic_operator ? 2 : 1;
  float* weights = arena_.Floats(c.n);
  for (int64_t i = 0; i < c.n; ++i) {
    weights[i] = relation.weight * (batch.weight.empty() ? 1.0f : batch.weight[i]);
  }
  c.weights = weights;
  for (const Side side : kSides) c.side(side) = BeginSide(side, batch, negatives, tables);
  AssignRows(tables);
  if (c.scores == nullptr) return;
  auto num_negatives = [&](const StepSide& side) {
    if (side.kind == NegativeKind::kAll) return side.table.count;
    return (side.batch_negatives() ? c.chunk_size : 0) + side.num_uniform;
  };
  c.scores->lhs_num_neg = num_negatives(c.sides[0]);
  c.scores->rhs_num_neg = num_negatives(c.sides[1]);
  c.scores->lhs_pos.resize(static_cast<size_t>(c.n));
  c.scores->rhs_pos.resize(static_cast<size_t>(c.n));
  c.scores->lhs_neg.resize(static_cast<size_t>(c.n * c.scores->lhs_num_neg));
  c.scores->rhs_neg.resize(static_cast<size_t>(c.n * c.scores->rhs_num_neg));
}

void FusedBatchStep::RunPasses() {
  StepContext& c = *context_;
  // Linear operators of many relations: all edges of a relation at once.
  const bool whole_batch = c.dynamic_operator && IsLinear(spec_.relation(relation_).op);
  BatchQueries queries[2];
  const BatchQueries* batch[2] = {nullptr, nullptr};
  for (int s = 0; whole_batch && s < 2; ++s) {
    queries[s] = LoadBatchQueries(&c, &c.sides[s]);
    batch[s] = &queries[s];
  }
  c.steps = c.steps && !whole_batch && !all_negatives();
  if (all_negatives()) {
    all_pass_.Run(&c, batch);
  } else {
    for (int64_t chunk = 0; chunk < c.num_chunks(); ++chunk) chunk_pass_.Run(&c, chunk, batch);
  }
  if (!c.backward) return;
  for (int s = 0; whole_batch && s < 2; ++s) FinishBatchQueries(&c, &c.sides[s], queries[s]);
  if (!c.steps) SumGlobalGradients();
  if (features_.any()) features_.Backward(rows_, &arena_);
}

// A global embedding is added to every row of its type that the batch uses.
void FusedBatchStep::SumGlobalGradients() {
  for (const Side side : kSides) {
    if (side == Side::kRhs && rows_.shared_table()) continue;
    float* grads = context_->side(side).global_grads;
    if (grads != nullptr) rows_.AddColumnSums(side, grads);
  }
}

// Static: an operator's parameters count once a negative chunk; dynamic: once an edge and
// direction.
void FusedBatchStep::RegularizeOperators() {
  StepContext& c = *context_;
  if (c.n3 == 0) return;
  for (const Side side : kSides) {
    OperatorParameters* op = c.side(side).op;
    if (op == nullptr) continue;
    regularized_.assign(static_cast<size_t>(op->num_used()), 0);
    if (spec_.dynamic()) {
      for (const int32_t slot : operator_slots_[static_cast<int>(side)]) ++regularized_[slot];
    } else {
      regularized_[0] = c.num_chunks();
    }
    c.reg += op->AddRegularization(c.n3, regularized_);
  }
}

absl::Status FusedBatchStep::NotFinite(const std::string& what, int64_t edge) const {
  std::string relation;
  if (!spec_.dynamic()) {
    relation = absl::StrCat(" of relation ", spec_.relation(relation_).name);
  } else if (edge >= 0) {
    relation = absl::StrCat(" of relation ", rels_[edge]);
  }
  return absl::OutOfRangeError(absl::StrCat(
      what, relation,
      " is not finite: lower lr, or limit the embeddings by max_norm or regularization_coef"));
}

absl::StatusOr<BatchStats> FusedBatchStep::CollectStats() const {
  const StepContext& c = *context_;
  BatchStats stats{.count = c.n,
                   .reg = c.reg,
                   .violators_lhs = c.sides[0].violators,
                   .violators_rhs = c.sides[1].violators};
  for (int64_t i = 0; i < c.n; ++i) {
    const double loss = static_cast<double>(c.sides[0].loss[i]) + c.sides[1].loss[i];
    if (!std::isfinite(loss)) return NotFinite("a score", i);
    stats.loss += loss;
  }
  return stats;
}

absl::Status FusedBatchStep::CheckGradients() {
  if (!rows_.finite()) {
    const RowGradients::Row row = rows_.FindNotFinite();
    const auto& positives = context_->side(row.side).positives;
    const auto edge = std::ranges::find(positives, row.offset);
    if (edge != positives.end()) return NotFinite("a gradient", edge - positives.begin());
    const RelationSpec& relation = spec_.relation(relation_);
    const EntityTypeId type = row.side == Side::kLhs ? relation.lhs : relation.rhs;
    return NotFinite(absl::StrCat("the gradient of row ", row.offset, " of ",
                                  spec_.entity_types[type].name, ", a negative,"),
                     -1);
  }
  if (features_.any() && !features_.features().finite()) {
    const RowGradients::Row row = features_.features().FindNotFinite();
    const RelationSpec& relation = spec_.relation(relation_);
    const EntityTypeId type = row.side == Side::kLhs ? relation.lhs : relation.rhs;
    return NotFinite(
        absl::StrCat("the gradient of feature ", row.offset, " of ", spec_.entity_types[type].name),
        -1);
  }
  int64_t relation = -1;
  if (!parameters_.Finite(&relation)) {
    if (relation < 0) return NotFinite("the gradient of a global embedding", -1);
    const auto edge = std::ranges::find(rels_, relation);
    return NotFinite("a parameter's gradient", edge == rels_.end() ? -1 : edge - rels_.begin());
  }
  return absl::OkStatus();
}

absl::StatusOr<BatchStats> FusedBatchStep::Run(EdgeBatch batch, const SampledNegatives& negatives,
                                               BatchTables tables, Until until,
                                               BatchScores* scores) {
  const bool backward = until != Until::kScores;
  UseOneOpenMpThread();
  WEFT_CHECK(batch.size() > 0);
  arena_.Begin();
  parameters_.Begin();
  relation_ = spec_.dynamic() ? 0 : batch.rel[0];
  rels_ = batch.rel;
  StepContext& c = context_.emplace(Scoring(spec_.comparator, spec_.bias), LossFunction(spec_));
  c.operators = &operators_;
  c.arena = &arena_;
  c.rows = &rows_;
  c.n = batch.size();
  c.dim = spec_.dimension(relation_);
  c.chunk_size = spec_.NegativeChunkSize(relation_, c.n);
  c.backward = backward;
  c.steps = until == Until::kStep;
  c.lr = spec_.lr;
  c.scores = scores;
  c.scoring.set_prefetch(&c.prefetch);
  if (backward) c.scoring.set_queries_stand_alone();
  WEFT_CHECK(tables.lhs.dimension == c.dim && tables.rhs.dimension == c.dim);
  features_.Pool(spec_.max_norm, &arena_, &batch, &tables);
  Begin(batch, negatives, tables);
  RunPasses();
  RegularizeOperators();
  WEFT_ASSIGN_OR_RETURN(const BatchStats stats, CollectStats());
  if (backward) WEFT_RETURN_IF_ERROR(CheckGradients());
  return stats;
}

absl::StatusOr<BatchStats> FusedBatchStep::Train(const EdgeBatch& batch,
                                                 const SampledNegatives& negatives,
                                                 const BatchTables& tables) {
  WEFT_ASSIGN_OR_RETURN(const BatchStats stats,
                        Run(batch, negatives, tables, Until::kStep, nullptr));
  parameters_.Step(spec_.relation_lr);
  std::atomic_ref(all_parameters_->steps).fetch_add(1, std::memory_order_relaxed);
  if (!context_->steps) rows_.Step(spec_.lr);
  if (features_.any()) features_.features().Step(spec_.lr);
  return stats;
}

absl::StatusOr<BatchStats> FusedBatchStep::Score(const EdgeBatch& batch,
                                                 const SampledNegatives& negatives,
                                                 const BatchTables& tables, BatchScores* scores) {
  return Run(batch, negatives, tables, Until::kScores, scores);
}

absl::StatusOr<BatchGradients> FusedBatchStep::Gradients(const EdgeBatch& batch,
                                                         const SampledNegatives& negatives,
                                                         const BatchTables& tables) {
  WEFT_RETURN_IF_ERROR(Run(batch, negatives, tables, Until::kGradients, nullptr).status());
  const auto rows = [&](Side side) {
    return (features_.pooled(side) ? features_.features() : rows_).Export(side);
  };
  return BatchGradients{
      .lhs = rows(Side::kLhs), .rhs = rows(Side::kRhs), .parameters = parameters_.Export()};
}

}  // namespace

absl::StatusOr<ParameterSet> FusedBatchStepFactory::MakeParameters(const ModelSpec& spec) const {
  WEFT_RETURN_IF_ERROR(CheckBuiltIn(spec));
  return MakeInitialParameters(spec);
}

absl::StatusOr<std::unique_ptr<BatchStep>> FusedBatchStepFactory::Make(
    const ModelSpec& spec, ParameterSet* parameters) const {
  WEFT_RETURN_IF_ERROR(CheckBuiltIn(spec));
  WEFT_RETURN_IF_ERROR(InitKernels());
  WEFT_ASSIGN_OR_RETURN(BatchParameters batch, BatchParameters::Make(spec, parameters));
  return std::make_unique<FusedBatchStep>(spec, parameters, std::move(batch));
}

}  // namespace weft
