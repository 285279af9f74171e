// ReferenceModel is a ModelSpec with its names looked up in the registries and its parameters
// found: what a reference step needs to know before it sees a batch.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/common/types.h"
#include "services/trainer/model/model_spec.h"
#include "services/trainer/nn/registry.h"

namespace weft::nn {

struct OperatorInstance {
  const OperatorDefinition* definition = nullptr;
  std::vector<Parameter*> parameters;  // in the definition's order
  // Of one relation; the first axis of the parameter is the relation when relations are dynamic.
  std::vector<std::vector<int64_t>> shapes;
};

struct ReferenceModel {
  ModelSpec spec;
  const ComparatorDefinition* comparator = nullptr;
  const LossDefinition* loss = nullptr;
  // By Side, then relation. Static relations have none on the left-hand side.
  std::vector<OperatorInstance> operators[2];
  std::vector<Parameter*> global_embeddings;  // by entity type; empty: none
};

// The parameters of `spec`, built-in and registered operators alike, with their initial values.
// Errors: InvalidArgument when the operator, comparator or loss is not registered.
absl::StatusOr<ParameterSet> MakeReferenceParameters(const ModelSpec& spec);

// `parameters` must outlive the model.
// Errors: InvalidArgument when a name is not registered, FailedPrecondition when the parameters are
// not those of the spec.
absl::StatusOr<ReferenceModel> MakeReferenceModel(const ModelSpec& spec, ParameterSet* parameters);

}  // namespace weft::nn
