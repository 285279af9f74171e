#include "services/trainer/fused/operators.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "services/trainer/kernels/operator_ops.h"
#include "services/trainer/kernels/vector_ops.h"

namespace weft {
namespace {

void CopyRow(const float* from, int64_t dim, float* to) {
  std::memcpy(to, from, static_cast<size_t>(PaddedDim(dim)) * sizeof(float));
}

// out = x W^T for all rows of `x`; W: [dim, dim], contiguous.
void MultiplyMatrix(Gemm* gemm, const RowBlock& x, const float* matrix, const RowBlock& out) {
  gemm->Multiply({.transpose_b = true,
                  .m = x.rows,
                  .n = x.dim,
                  .k = x.dim,
                  .a_stride = x.stride,
                  .b_stride = x.dim,
                  .c_stride = out.stride},
                 x.data, matrix, out.data);
}

// out = g W, and the matrix's gradient += g^T x.
void MultiplyMatrixBackward(Gemm* gemm, const RowBlock& x, const float* matrix, const RowBlock& g,
                            float* matrix_grads, const RowBlock& out) {
  gemm->Multiply({.transpose_a = true,
                  .m = g.dim,
                  .n = x.dim,
                  .k = g.rows,
                  .a_stride = g.stride,
                  .b_stride = x.stride,
                  .c_stride = x.dim,
                  .accumulate = true},
                 g.data, x.data, matrix_grads);
  gemm->Multiply({.m = g.rows,
                  .n = x.dim,
                  .k = g.dim,
                  .a_stride = g.stride,
                  .b_stride = x.dim,
                  .c_stride = out.stride},
                 g.data, matrix, out.data);
}

}  // namespace

template <class F>
void OperatorPass::ForEachGroup(const int32_t* index, int64_t rows, const F& f) {
  order_.resize(static_cast<size_t>(rows));
  std::iota(order_.begin(), order_.end(), 0);
  std::ranges::stable_sort(order_, {}, [index](int32_t i) { return index[i]; });
  for (size_t begin = 0; begin < order_.size();) {
    const int32_t slot = index[order_[begin]];
    size_t end = begin;
    while (end < order_.size() && index[order_[end]] == slot) ++end;
    f(slot, std::span<const int32_t>(order_).subspan(begin, end - begin));
    begin = end;
  }
}

void OperatorPass::Forward(const OperatorParameters& op, const int32_t* index, const RowBlock& x,
                           const RowBlock& out) {
  const RowBlock values = op.values();
  switch (op.kind()) {
    case Operator::kNone:
    case Operator::kCustom:
      CopyRows(x, out);
      return;
    case Operator::kTranslation:
      return Translate(x, {values, index}, out);
    case Operator::kDiagonal:
      return MultiplyDiagonal(x, {values, index}, out);
    case Operator::kComplexDiagonal:
      return MultiplyComplex(x, {values, index}, out);
    case Operator::kLinear:
    case Operator::kAffine:
      break;
  }
  if (index == nullptr) {
    MultiplyMatrix(gemm_, x, values.row(0), out);
  } else {
    const Arena::Mark mark = arena_->mark();
    const RowBlock from = arena_->Rows(x.rows, x.dim);
    const RowBlock to = arena_->Rows(x.rows, x.dim);
    ForEachGroup(index, x.rows, [&](int32_t slot, std::span<const int32_t> rows) {
      const auto count = static_cast<int64_t>(rows.size());
      for (int64_t i = 0; i < count; ++i) CopyRow(x.row(rows[i]), x.dim, from.row(i));
      MultiplyMatrix(gemm_, from.Slice(0, count), values.row(slot), to.Slice(0, count));
      for (int64_t i = 0; i < count; ++i) CopyRow(to.row(i), x.dim, out.row(rows[i]));
    });
    arena_->Release(mark);
  }
  ClearPadding(out);
  if (op.kind() == Operator::kLinear) return;
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* translation = values.row(index == nullptr ? 0 : index[i]) + x.dim * x.dim;
    AddFloats(translation, x.dim, out.row(i));
  }
}

void OperatorPass::Backward(OperatorParameters* op, const int32_t* index, const RowBlock& x,
                            const RowBlock& g) {
  const RowBlock values = op->values();
  const RowBlock grads = op->grads();
  switch (op->kind()) {
    case Operator::kNone:
    case Operator::kCustom:
      return;
    case Operator::kTranslation:
      return TranslateBackward(g, {grads, index});
    case Operator::kDiagonal:
      return MultiplyDiagonalBackward(x, {values, index}, {grads, index}, g);
    case Operator::kComplexDiagonal:
      return MultiplyComplexBackward(x, {values, index}, {grads, index}, g);
    case Operator::kLinear:
    case Operator::kAffine:
      break;
  }
  if (op->kind() == Operator::kAffine) {
    for (int64_t i = 0; i < g.rows; ++i) {
      AddFloats(g.row(i), g.dim, grads.row(index == nullptr ? 0 : index[i]) + g.dim * g.dim);
    }
  }
  const Arena::Mark mark = arena_->mark();
  const RowBlock result = arena_->Rows(g.rows, g.dim);
  if (index == nullptr) {
    MultiplyMatrixBackward(gemm_, x, values.row(0), g, grads.row(0), result);
    CopyRows(result, g);
  } else {
    const RowBlock x_rows = arena_->Rows(g.rows, g.dim);
    const RowBlock g_rows = arena_->Rows(g.rows, g.dim);
    ForEachGroup(index, g.rows, [&](int32_t slot, std::span<const int32_t> rows) {
      const auto count = static_cast<int64_t>(rows.size());
      for (int64_t i = 0; i < count; ++i) {
        CopyRow(x.row(rows[i]), x.dim, x_rows.row(i));
        CopyRow(g.row(rows[i]), g.dim, g_rows.row(i));
      }
      MultiplyMatrixBackward(gemm_, x_rows.Slice(0, count), values.row(slot),
                             g_rows.Slice(0, count), grads.row(slot), result.Slice(0, count));
      for (int64_t i = 0; i < count; ++i) CopyRow(result.row(i), g.dim, g.row(rows[i]));
    });
  }
  arena_->Release(mark);
}

}  // namespace weft
