// Relation operators over blocks of rows, forward and backward: element-wise ones by kernels,
// linear ones by GEMM, relation by relation.
#pragma once

#include <cstdint>
#include <vector>

#include "services/trainer/fused/arena.h"
#include "services/trainer/fused/operator_parameters.h"
#include "services/trainer/kernels/gemm.h"
#include "services/trainer/kernels/row_block.h"

namespace weft {

// Whether the operator is a matrix: then many rows of one relation at once are much faster than
// few.
constexpr bool IsLinear(Operator op) { return op == Operator::kLinear || op == Operator::kAffine; }

// `index`: [rows], the slots of each row's relation in the parameters; nullptr: slot 0 for all.
// Not thread-safe: one a worker.
class OperatorPass {
 public:
  OperatorPass(Gemm* gemm, Arena* arena) : gemm_(gemm), arena_(arena) {}

  // out = op(x), padded. `out` is not x.
  void Forward(const OperatorParameters& op, const int32_t* index, const RowBlock& x,
               const RowBlock& out);
  // `g`, gradients of op(x), becomes gradients of x; those of the parameters are added to op's.
  void Backward(OperatorParameters* op, const int32_t* index, const RowBlock& x, const RowBlock& g);

 private:
  // Calls f(slot, rows) for the rows of each relation: `order_` sorted by slot.
  template <class F>
  void ForEachGroup(const int32_t* index, int64_t rows, const F& f);

  Gemm* gemm_;
  Arena* arena_;
  std::vector<int32_t> order_;
};

}  // namespace weft
