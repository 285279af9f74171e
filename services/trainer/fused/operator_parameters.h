// OperatorParameters is one relation operator's shared parameters as a batch sees them: the rows of
// the relations that occur in it, copied once, and their gradients.
//
// A packed row holds all that one relation has: translation, diagonal [dim]; complex_diagonal the
// real and then the imaginary parts [dim]; linear the matrix [dim, dim]; affine the matrix and then
// the translation [dim * dim + dim]. Static operators have one row.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/float_block.h"
#include "services/common/parameter_set.h"
#include "services/common/types.h"
#include "services/trainer/kernels/operator_ops.h"
#include "services/trainer/kernels/row_block.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// The shared parameters of an operator, in the order in which a packed row holds them.
// Errors: FailedPrecondition when one is missing or has another shape.
absl::StatusOr<std::vector<Parameter*>> FindOperatorParameters(const ModelSpec& spec,
                                                               ParameterSet* parameters,
                                                               RelationTypeId relation, Side side);

// Not thread-safe: one a worker. The parameters themselves are shared and read and written as
// row_ops.h says.
class OperatorParameters {
 public:
  // Errors: as FindOperatorParameters.
  static absl::StatusOr<OperatorParameters> Make(const ModelSpec& spec, ParameterSet* parameters,
                                                 RelationTypeId relation, Side side);

  Operator kind() const { return kind_; }
  int64_t dim() const { return dim_; }

  // Starts a batch: no relation has been used.
  void Begin();
  // The slot of a relation's row in values() and grads(). Its first use in a batch copies the row
  // and clears its gradient; blocks got before may move then.
  int32_t Use(int64_t relation);

  int64_t num_used() const { return static_cast<int64_t>(used_.size()); }
  RowBlock values() const { return Block(values_); }
  RowBlock grads() const { return Block(grads_); }

  // N3 on the parameters: row s counts counts[s] times. Adds to the gradients, returns the penalty.
  double AddRegularization(float coef, const std::vector<int64_t>& counts);

  // Whether all gradients are finite; if not, the relation of the first that is not.
  bool Finite(int64_t* relation) const;
  // AsyncAdagrad on the rows that were used: the others' gradients are zero, which changes nothing.
  void Step(float lr);
  // Whole parameters by name.
  void Export(std::map<std::string, std::vector<float>>* out) const;

 private:
  OperatorParameters() = default;
  RowBlock Block(const FloatBlock& block) const {
    return {const_cast<float*>(block.data()), num_used(), packed_, RowStride(packed_)};
  }

  Operator kind_ = Operator::kNone;
  int64_t dim_ = 0;
  int64_t packed_ = 0;  // floats a packed row
  std::vector<Parameter*> parts_;
  std::vector<int32_t> slot_of_;  // by relation; < 0: not used
  std::vector<int64_t> used_;     // relations by slot
  FloatBlock values_;             // [slots, RowStride(packed)]
  FloatBlock grads_;
};

}  // namespace weft
