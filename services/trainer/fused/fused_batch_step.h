// FusedBatchStepFactory makes the fast implementation of BatchStep: gather, operators, scores by
// GEMM, losses with their gradients in one pass, GEMMs back, and one row-wise Adagrad step a batch,
// with gradients derived by hand.
//
// It covers every built-in comparator, operator, loss and kind of negatives. A model with one that
// somebody brought (Comparator::kCustom, ...) needs `compute: reference`.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Thread-safety: constant. Each thread that calls a step's methods keeps OpenMP to itself alone
// (the step sees to it).
class FusedBatchStepFactory final : public BatchStepFactory {
 public:
  absl::StatusOr<ParameterSet> MakeParameters(const ModelSpec& spec) const override;

  // Errors:
  //   InvalidArgument: something that is not built in, or an odd dimension for complex_diagonal.
  //   FailedPrecondition: `parameters` lacks one that the model has, or has it in another shape.
  absl::StatusOr<std::unique_ptr<BatchStep>> Make(const ModelSpec& spec,
                                                  ParameterSet* parameters) const override;
};

}  // namespace weft
