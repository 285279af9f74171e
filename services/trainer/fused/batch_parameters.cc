#include "services/trainer/fused/batch_parameters.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "services/common/changed_rows.h"
#include "services/common/status_macros.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {

absl::StatusOr<Parameter*> FindGlobalEmbedding(const ModelSpec& spec, ParameterSet* parameters,
                                               EntityTypeId type) {
  const EntityTypeSpec& entity = spec.entity_types[type];
  const std::string name = GlobalEmbeddingName(entity.name);
  Parameter* parameter = parameters->Find(name);
  if (parameter == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the model has no parameter ", name));
  }
  if (parameter->size() != entity.dimension) {
    return absl::FailedPreconditionError(absl::StrCat("parameter ", name, " has ",
                                                      parameter->size(), " values, dimension is ",
                                                      entity.dimension));
  }
  return parameter;
}

absl::StatusOr<BatchParameters> BatchParameters::Make(const ModelSpec& spec,
                                                      ParameterSet* parameters) {
  BatchParameters made;
  made.parameters_ = parameters;
  made.dynamic_ = spec.dynamic();
  for (const Side side : kSides) {
    auto& operators = made.operators_[static_cast<int>(side)];
    operators.resize(spec.relations.size());
    // Static operators act on the right-hand side only.
    if (side == Side::kLhs && !spec.dynamic()) continue;
    for (size_t r = 0; r < spec.relations.size(); ++r) {
      if (spec.relations[r].op == Operator::kNone) continue;
      WEFT_ASSIGN_OR_RETURN(
          operators[r],
          OperatorParameters::Make(spec, parameters, static_cast<RelationTypeId>(r), side));
    }
  }
  made.globals_.assign(spec.entity_types.size(), nullptr);
  made.global_rows_.resize(spec.entity_types.size());
  for (size_t t = 0; spec.global_emb && t < spec.entity_types.size(); ++t) {
    WEFT_ASSIGN_OR_RETURN(made.globals_[t],
                          FindGlobalEmbedding(spec, parameters, static_cast<EntityTypeId>(t)));
  }
  return made;
}

void BatchParameters::Begin() {
  used_[0] = used_[1] = nullptr;
  std::ranges::fill(global_rows_, GlobalRow{});
}

OperatorParameters* BatchParameters::UseOperator(Side side, RelationTypeId relation,
                                                 std::span<const RelationTypeId> edges,
                                                 std::vector<int32_t>* index) {
  const int s = static_cast<int>(side);
  std::optional<OperatorParameters>& op = operators_[s][dynamic_ ? 0 : relation];
  if (!op.has_value()) return nullptr;
  op->Begin();
  if (dynamic_) {
    index->resize(edges.size());
    std::ranges::transform(edges, index->begin(), [&op](RelationTypeId r) { return op->Use(r); });
  } else {
    op->Use(0);
  }
  return used_[s] = &*op;
}

GlobalRow BatchParameters::UseGlobal(EntityTypeId type, Arena* arena) {
  GlobalRow& row = global_rows_[type];
  const Parameter* parameter = globals_[type];
  if (parameter == nullptr || row.values != nullptr) return row;
  const int64_t dim = parameter->size();
  row = {arena->Floats(dim), arena->Floats(dim)};
  std::fill_n(row.values, PaddedDim(dim), 0.0f);
  std::fill_n(row.grads, PaddedDim(dim), 0.0f);
  ReadParameter(parameter->values.data(), dim, row.values);
  return row;
}

bool BatchParameters::Finite(int64_t* relation) const {
  *relation = -1;
  for (const OperatorParameters* op : used_) {
    if (op != nullptr && !op->Finite(relation)) return false;
  }
  for (size_t t = 0; t < globals_.size(); ++t) {
    const float* grads = global_rows_[t].grads;
    if (grads != nullptr && !AllFinite(grads, globals_[t]->size())) return false;
  }
  return true;
}

void BatchParameters::Step(float lr) {
  for (OperatorParameters* op : used_) {
    if (op != nullptr) op->Step(lr);
  }
  for (size_t t = 0; t < globals_.size(); ++t) {
    const float* grads = global_rows_[t].grads;
    if (grads == nullptr) continue;
    AdagradElements(globals_[t]->values.data(), globals_[t]->adagrad_sums.data(), grads,
                    globals_[t]->size(), lr);
    if (!globals_[t]->changed.empty()) MarkChanged(globals_[t]->changed.data(), 0);
  }
}

std::map<std::string, std::vector<float>> BatchParameters::Export() const {
  std::map<std::string, std::vector<float>> out;
  for (const Parameter& parameter : parameters_->all()) {
    out[parameter.name].assign(static_cast<size_t>(parameter.size()), 0.0f);
  }
  for (const OperatorParameters* op : used_) {
    if (op != nullptr) op->Export(&out);
  }
  for (size_t t = 0; t < globals_.size(); ++t) {
    if (global_rows_[t].grads == nullptr) continue;
    std::copy_n(global_rows_[t].grads, globals_[t]->size(), out[globals_[t]->name].begin());
  }
  return out;
}

}  // namespace weft
