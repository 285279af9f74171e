// The element-wise relation operators over blocks of rows, forward and backward. (Linear ones are
// GEMMs; see fused/operators.)
//
// Row i of a block uses the operator parameters of `index[i]`, or of row 0 when `index` is nullptr
// (one relation for the whole block). A parameter row is padded like any other; complex_diagonal's
// has the real parts in columns [0, dim/2) and the imaginary ones in [dim/2, dim).
// Thread-safety: pure functions of their arguments.
#pragma once

#include <cstdint>

#include "services/trainer/kernels/row_block.h"

namespace weft {

struct OperatorRows {
  RowBlock params;
  const int32_t* index = nullptr;

  float* row(int64_t i) const { return params.row(index == nullptr ? 0 : index[i]); }
};

// out may be x.
void Translate(const RowBlock& x, const OperatorRows& op, const RowBlock& out);
void MultiplyDiagonal(const RowBlock& x, const OperatorRows& op, const RowBlock& out);
void MultiplyComplex(const RowBlock& x, const OperatorRows& op, const RowBlock& out);

// Backward: `g` holds gradients of the operator's result. Adds to the parameters' gradients
// (`op_grads`, indexed as `op`) and turns g, in place, into gradients of x.
void TranslateBackward(const RowBlock& g, const OperatorRows& op_grads);
void MultiplyDiagonalBackward(const RowBlock& x, const OperatorRows& op,
                              const OperatorRows& op_grads, const RowBlock& g);
void MultiplyComplexBackward(const RowBlock& x, const OperatorRows& op,
                             const OperatorRows& op_grads, const RowBlock& g);

}  // namespace weft
