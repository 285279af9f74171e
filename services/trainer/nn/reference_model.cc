#include "services/trainer/nn/reference_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::nn {
namespace {

std::string NameOf(Comparator comparator, const std::string& custom) {
  switch (comparator) {
    case Comparator::kDot:
      return "dot";
    case Comparator::kCos:
      return "cos";
    case Comparator::kL2:
      return "l2";
    case Comparator::kSquaredL2:
      return "squared_l2";
    case Comparator::kCustom:
      break;
  }
  return custom;
}

std::string NameOf(Operator op, const std::string& custom) {
  switch (op) {
    case Operator::kNone:
      return "none";
    case Operator::kTranslation:
      return "translation";
    case Operator::kDiagonal:
      return "diagonal";
    case Operator::kLinear:
      return "linear";
    case Operator::kAffine:
      return "affine";
    case Operator::kComplexDiagonal:
      return "complex_diagonal";
    case Operator::kCustom:
      break;
  }
  return custom;
}

std::string NameOf(Loss loss, const std::string& custom) {
  switch (loss) {
    case Loss::kRanking:
      return "ranking";
    case Loss::kLogistic:
      return "logistic";
    case Loss::kSoftmax:
      return "softmax";
    case Loss::kCustom:
      break;
  }
  return custom;
}

absl::Status NotRegistered(absl::string_view key, const std::string& name,
                           const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(absl::StrCat(
      key, ": '", name, "' is not registered; there are: ", absl::StrJoin(known, ", ")));
}

absl::StatusOr<const OperatorDefinition*> LookUpOperator(const ModelSpec& spec, size_t relation) {
  const RelationSpec& r = spec.relations[relation];
  const std::string name = NameOf(r.op, r.operator_name);
  const OperatorDefinition* definition = FindOperator(name, spec.dynamic());
  if (definition == nullptr) {
    return NotRegistered(absl::StrCat("relations[", relation, "].operator (",
                                      spec.dynamic() ? "dynamic" : "static", " relations)"),
                         name, AllRegisteredNames().operators);
  }
  return definition;
}

// Calls visit(side, relation, definition) for every operator, in the order of the parameters.
template <typename Visit>
absl::Status ForEachOperator(const ModelSpec& spec, Visit visit) {
  for (const Side side : kSides) {
    if (side == Side::kLhs && !spec.dynamic()) continue;
    for (size_t r = 0; r < spec.relations.size(); ++r) {
      WEFT_ASSIGN_OR_RETURN(const OperatorDefinition* definition, LookUpOperator(spec, r));
      WEFT_RETURN_IF_ERROR(visit(side, static_cast<RelationTypeId>(r), *definition));
    }
  }
  return absl::OkStatus();
}

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

// Floats of the parameter's block: [relations, ...] or [1, ...].
int64_t Rows(const ModelSpec& spec) { return spec.dynamic() ? spec.num_dynamic_relations : 1; }

absl::StatusOr<Parameter*> FindParameter(ParameterSet* parameters, const std::string& name,
                                         int64_t rows, int64_t cols) {
  Parameter* found = parameters->Find(name);
  if (found == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("parameter ", name, " is missing"));
  }
  if (found->values.rows() != rows || found->values.cols() != cols) {
    return absl::FailedPreconditionError(
        absl::StrCat("parameter ", name, ": has shape ", found->values.rows(), " x ",
                     found->values.cols(), ", the model needs ", rows, " x ", cols));
  }
  return found;
}

}  // namespace

absl::StatusOr<ParameterSet> MakeReferenceParameters(const ModelSpec& spec) {
  ParameterSet parameters;
  const int64_t rows = Rows(spec);
  WEFT_RETURN_IF_ERROR(
      ForEachOperator(spec, [&](Side side, RelationTypeId r, const OperatorDefinition& definition) {
        for (const ParameterDefinition& from : definition.parameters(spec.dimension(r))) {
          const int64_t cols = Product(from.shape);
          if (!from.initial.empty() && static_cast<int64_t>(from.initial.size()) != cols) {
            return absl::InvalidArgumentError(
                absl::StrCat("operator '", definition.name, "', parameter ", from.name, ": has ",
                             from.initial.size(), " initial values, its shape needs ", cols));
          }
          std::vector<int64_t> shape = from.shape;
          if (spec.dynamic()) shape.insert(shape.begin(), rows);
          FloatBlock& values =
              parameters.Add(OperatorParameterName(r, side, from.name), shape, rows, cols).values;
          for (int64_t i = 0; i < rows; ++i) std::ranges::copy(from.initial, values.row(i).begin());
        }
        return absl::OkStatus();
      }));
  if (spec.global_emb) {
    for (const EntityTypeSpec& type : spec.entity_types) {
      parameters.Add(GlobalEmbeddingName(type.name), {type.dimension}, 1, type.dimension);
    }
  }
  return parameters;
}

absl::StatusOr<ReferenceModel> MakeReferenceModel(const ModelSpec& spec, ParameterSet* parameters) {
  ReferenceModel model;
  model.spec = spec;
  const std::string comparator = NameOf(spec.comparator, spec.comparator_name);
  model.comparator = FindComparator(comparator);
  if (model.comparator == nullptr) {
    return NotRegistered("comparator", comparator, AllRegisteredNames().comparators);
  }
  const std::string loss = NameOf(spec.loss, spec.loss_name);
  model.loss = FindLoss(loss);
  if (model.loss == nullptr) return NotRegistered("loss_fn", loss, AllRegisteredNames().losses);

  WEFT_RETURN_IF_ERROR(
      ForEachOperator(spec, [&](Side side, RelationTypeId r, const OperatorDefinition& definition) {
        OperatorInstance instance{.definition = &definition, .parameters = {}, .shapes = {}};
        for (const ParameterDefinition& p : definition.parameters(spec.dimension(r))) {
          WEFT_ASSIGN_OR_RETURN(Parameter * found,
                                FindParameter(parameters, OperatorParameterName(r, side, p.name),
                                              Rows(spec), Product(p.shape)));
          instance.parameters.push_back(found);
          instance.shapes.push_back(p.shape);
        }
        model.operators[static_cast<int>(side)].push_back(std::move(instance));
        return absl::OkStatus();
      }));
  if (spec.global_emb) {
    for (const EntityTypeSpec& type : spec.entity_types) {
      WEFT_ASSIGN_OR_RETURN(
          Parameter * found,
          FindParameter(parameters, GlobalEmbeddingName(type.name), 1, type.dimension));
      model.global_embeddings.push_back(found);
    }
  }
  return model;
}

}  // namespace weft::nn
