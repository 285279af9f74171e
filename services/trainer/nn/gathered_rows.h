// GatheredRows holds the distinct rows of one table that a batch touches, as one leaf of the
// autograd graph: looking a row up twice sums both gradients, as Adagrad needs them.
//
// The table is borrowed float32 memory, read and written in place through views; the leaf is a copy
// in the precision of the computation. Entity tables and the parameters of relations are treated
// alike. Includes ATen: for services/trainer/nn alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace weft::nn {

// Borrowed rows of float32: values [rows, cols].
struct FloatTable {
  float* values = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
};

class GatheredRows {
 public:
  // Copies the rows at `offsets` (in any order, with repetitions; each in [0, table.rows), else
  // throws c10::Error). `max_norm` > 0: rows whose 2-norm is larger are scaled to it first, in the
  // table. Nothing is written when a row is not finite. `table` must outlive this object.
  GatheredRows(const FloatTable& table, std::vector<int32_t> offsets, at::ScalarType precision,
               double max_norm);

  // [offsets, cols], differentiable. Each offset is one of those gathered.
  at::Tensor Lookup(std::span<const int32_t> offsets) const;
  // All of them, in ascending order: [offsets().size(), cols].
  const at::Tensor& all() const { return leaf_; }

  // Ascending, unique.
  std::span<const int32_t> offsets() const { return offsets_; }

  // What backward left: [offsets().size(), cols]; zeros when the loss does not depend on the rows.
  at::Tensor gradient() const;

  // row -= lr * g / (sqrt(G) + 1e-10) in the table, after G += mean(g^2); sums: [table.rows].
  void StepRowAdagrad(float* sums, double lr) const;
  // The same with one G for each number; sums: [table.rows, table.cols].
  void StepAdagrad(float* sums, double lr) const;

 private:
  at::Tensor Values() const;  // view of the table
  void LimitNorms(double max_norm) const;

  FloatTable table_;
  std::vector<int32_t> offsets_;
  at::Tensor index_;  // offsets_, int64
  at::Tensor leaf_;
};

// A view of `shape` on `values`, without ownership.
at::Tensor ViewOf(float* values, at::IntArrayRef shape);

}  // namespace weft::nn
