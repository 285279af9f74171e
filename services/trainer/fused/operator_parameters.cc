#include "services/trainer/fused/operator_parameters.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "services/common/changed_rows.h"
#include "services/common/status_macros.h"
#include "services/trainer/kernels/row_ops.h"
#include "services/trainer/kernels/vector_ops.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

struct Part {
  std::string_view name;
  bool plural;  // for dynamic relations
  int64_t cols;
};

std::vector<Part> PartsOf(Operator op, int64_t dim) {
  switch (op) {
    case Operator::kNone:
    case Operator::kCustom:
      return {};
    case Operator::kTranslation:
      return {{"translation", true, dim}};
    case Operator::kDiagonal:
      return {{"diagonal", true, dim}};
    case Operator::kLinear:
      return {{"linear_transformation", true, dim * dim}};
    case Operator::kAffine:
      return {{"linear_transformation", true, dim * dim}, {"translation", true, dim}};
    case Operator::kComplexDiagonal:
      return {{"real", false, dim / 2}, {"imag", false, dim / 2}};
  }
  return {};
}

}  // namespace

absl::StatusOr<std::vector<Parameter*>> FindOperatorParameters(const ModelSpec& spec,
                                                               ParameterSet* parameters,
                                                               RelationTypeId relation, Side side) {
  const int64_t rows = spec.dynamic() ? spec.num_dynamic_relations : 1;
  std::vector<Parameter*> found;
  for (const Part& part : PartsOf(spec.relation(relation).op, spec.dimension(relation))) {
    const std::string name = OperatorParameterName(
        relation, side,
        absl::StrCat(std::string(part.name), part.plural && spec.dynamic() ? "s" : ""));
    Parameter* parameter = parameters->Find(name);
    if (parameter == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat("the model has no parameter ", name));
    }
    if (parameter->values.rows() != rows || parameter->values.cols() != part.cols) {
      return absl::FailedPreconditionError(absl::StrCat(
          "parameter ", name, " is ", parameter->values.rows(), " x ", parameter->values.cols(),
          ", but the configuration makes it ", rows, " x ", part.cols));
    }
    found.push_back(parameter);
  }
  return found;
}

absl::StatusOr<OperatorParameters> OperatorParameters::Make(const ModelSpec& spec,
                                                            ParameterSet* parameters,
                                                            RelationTypeId relation, Side side) {
  OperatorParameters made;
  made.kind_ = spec.relation(relation).op;
  made.dim_ = spec.dimension(relation);
  WEFT_ASSIGN_OR_RETURN(made.parts_, FindOperatorParameters(spec, parameters, relation, side));
  for (const Parameter* part : made.parts_) made.packed_ += part->values.cols();
  made.slot_of_.assign(static_cast<size_t>(spec.dynamic() ? spec.num_dynamic_relations : 1), -1);
  return made;
}

void OperatorParameters::Begin() {
  for (const int64_t relation : used_) slot_of_[static_cast<size_t>(relation)] = -1;
  used_.clear();
}

int32_t OperatorParameters::Use(int64_t relation) {
  int32_t& slot = slot_of_[static_cast<size_t>(relation)];
  if (slot >= 0) return slot;
  slot = static_cast<int32_t>(used_.size());
  used_.push_back(relation);
  if (num_used() > values_.rows()) {
    FloatBlock values(std::max<int64_t>(2 * values_.rows(), 1), RowStride(packed_));
    FloatBlock grads(values.rows(), values.cols());
    std::ranges::copy(values_.span(), values.data());
    std::ranges::copy(grads_.span(), grads.data());
    values_ = std::move(values);
    grads_ = std::move(grads);
  }
  float* to = values_.row(slot).data();
  for (const Parameter* part : parts_) {
    const int64_t cols = part->values.cols();
    ReadParameter(part->values.data() + relation * cols, cols, to);
    to += cols;
  }
  std::ranges::fill(grads_.row(slot), 0.0f);
  return slot;
}

double OperatorParameters::AddRegularization(float coef, const std::vector<int64_t>& counts) {
  double total = 0;
  for (int64_t s = 0; s < num_used(); ++s) {
    const auto count = static_cast<double>(counts[static_cast<size_t>(s)]);
    total += count * AddCubedNorm(values().Slice(s, 1), kind_ == Operator::kComplexDiagonal,
                                  static_cast<float>(coef * count), grads().Slice(s, 1));
  }
  return total * static_cast<double>(coef);
}

bool OperatorParameters::Finite(int64_t* relation) const {
  for (int64_t s = 0; s < num_used(); ++s) {
    if (AllFinite(grads().row(s), packed_)) continue;
    *relation = used_[static_cast<size_t>(s)];
    return false;
  }
  return true;
}

void OperatorParameters::Step(float lr) {
  for (int64_t s = 0; s < num_used(); ++s) {
    const float* g = grads().row(s);
    for (Parameter* part : parts_) {
      const int64_t cols = part->values.cols();
      const int64_t at = used_[static_cast<size_t>(s)] * cols;
      AdagradElements(part->values.data() + at, part->adagrad_sums.data() + at, g, cols, lr);
      if (!part->changed.empty()) {
        MarkChanged(part->changed.data(), used_[static_cast<size_t>(s)]);
      }
      g += cols;
    }
  }
}

void OperatorParameters::Export(std::map<std::string, std::vector<float>>* out) const {
  int64_t column = 0;
  for (const Parameter* part : parts_) {
    const int64_t cols = part->values.cols();
    std::vector<float>& whole = (*out)[part->name];
    whole.assign(static_cast<size_t>(part->size()), 0.0f);
    for (int64_t s = 0; s < num_used(); ++s) {
      std::copy_n(grads().row(s) + column, cols,
                  whole.begin() + used_[static_cast<size_t>(s)] * cols);
    }
    column += cols;
  }
}

}  // namespace weft
