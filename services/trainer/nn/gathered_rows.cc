#include "services/trainer/nn/gathered_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

namespace weft::nn {
namespace {

constexpr double kEpsilon = 1e-10;

at::Tensor Index(int64_t size) { return at::empty({size}, at::kLong); }

}  // namespace

at::Tensor ViewOf(float* values, at::IntArrayRef shape) {
  return at::from_blob(values, shape, at::kFloat);
}

GatheredRows::GatheredRows(const FloatTable& table, std::vector<int32_t> offsets,
                           at::ScalarType precision, double max_norm)
    : table_(table), offsets_(std::move(offsets)) {
  std::sort(offsets_.begin(), offsets_.end());
  offsets_.erase(std::unique(offsets_.begin(), offsets_.end()), offsets_.end());
  index_ = Index(static_cast<int64_t>(offsets_.size()));
  std::copy(offsets_.begin(), offsets_.end(), index_.data_ptr<int64_t>());
  if (max_norm > 0) LimitNorms(max_norm);
  leaf_ = Values().index_select(0, index_).to(precision).requires_grad_(true);
}

at::Tensor GatheredRows::Values() const {
  return ViewOf(table_.values, {table_.rows, table_.cols});
}

void GatheredRows::LimitNorms(double max_norm) const {
  at::NoGradGuard no_grad;
  const at::Tensor rows = Values().index_select(0, index_).to(at::kDouble);
  if (!rows.isfinite().all().item<bool>()) return;
  const at::Tensor norms = rows.square().sum(1).sqrt();
  const at::Tensor which = norms.gt(max_norm).nonzero().squeeze(1);
  if (which.numel() == 0) return;
  const at::Tensor factors = max_norm / (norms.index_select(0, which) + 1e-7);
  const at::Tensor scaled = rows.index_select(0, which) * factors.unsqueeze(1);
  Values().index_copy_(0, index_.index_select(0, which), scaled.to(at::kFloat));
}

at::Tensor GatheredRows::Lookup(std::span<const int32_t> offsets) const {
  at::Tensor positions = Index(static_cast<int64_t>(offsets.size()));
  int64_t* out = positions.data_ptr<int64_t>();
  for (const int32_t offset : offsets) {
    *out++ = std::lower_bound(offsets_.begin(), offsets_.end(), offset) - offsets_.begin();
  }
  return leaf_.index_select(0, positions);
}

at::Tensor GatheredRows::gradient() const {
  return leaf_.grad().defined() ? leaf_.grad() : at::zeros_like(leaf_);
}

// In both: G is read once and kept, so that a concurrent update cannot make it smaller than this
// step's own g^2; and the differences are added to what the table holds now, not to what was
// gathered.

void GatheredRows::StepRowAdagrad(float* sums, double lr) const {
  at::NoGradGuard no_grad;
  const at::Tensor g = gradient();
  const at::Tensor added = g.square().mean(1);
  at::Tensor all_sums = ViewOf(sums, {table_.rows});
  const at::Tensor sum = all_sums.index_select(0, index_) + added;
  all_sums.index_add_(0, index_, added.to(at::kFloat));
  const at::Tensor update = g * (-lr) / (sum.sqrt() + kEpsilon).unsqueeze(1);
  Values().index_add_(0, index_, update.to(at::kFloat));
}

void GatheredRows::StepAdagrad(float* sums, double lr) const {
  at::NoGradGuard no_grad;
  const at::Tensor g = gradient();
  const at::Tensor added = g.square();
  at::Tensor all_sums = ViewOf(sums, {table_.rows, table_.cols});
  const at::Tensor sum = all_sums.index_select(0, index_) + added;
  all_sums.index_add_(0, index_, added.to(at::kFloat));
  const at::Tensor update = g * (-lr) / (sum.sqrt() + kEpsilon);
  Values().index_add_(0, index_, update.to(at::kFloat));
}

}  // namespace weft::nn
