#include "services/trainer/nn/builtins.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cdist.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "absl/strings/str_cat.h"

namespace weft::nn {
namespace {

// Operators. Each formula broadcasts over [m, shape...] as over [shape...], so that one serves
// static and dynamic relations.

at::Tensor Identity(const at::Tensor& x, const Tensors&) { return x; }

at::Tensor Translate(const at::Tensor& x, const Tensors& p) { return x + p[0]; }

at::Tensor ScaleCoordinates(const at::Tensor& x, const Tensors& p) { return x * p[0]; }

at::Tensor MatrixTimesVector(const at::Tensor& x, const Tensors& p) {
  return at::matmul(p[0], x.unsqueeze(-1)).squeeze(-1);
}

at::Tensor MatrixTimesVectorPlusVector(const at::Tensor& x, const Tensors& p) {
  return MatrixTimesVector(x, p) + p[1];
}

at::Tensor ComplexProduct(const at::Tensor& x, const Tensors& p) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor re = x.narrow(-1, 0, half);
  const at::Tensor im = x.narrow(-1, half, half);
  return at::cat({re * p[0] - im * p[1], re * p[1] + im * p[0]}, -1);
}

at::Tensor SquaredComplexModuli(const Tensors& p) { return p[0].square() + p[1].square(); }

std::vector<float> Ones(int64_t n) { return std::vector<float>(n, 1.0f); }

std::vector<float> IdentityMatrix(int64_t n) {
  std::vector<float> matrix(n * n);
  for (int64_t i = 0; i < n; ++i) matrix[i * n + i] = 1;
  return matrix;
}

// Comparators.

at::Tensor InnerProduct(const at::Tensor& a, const at::Tensor& b) {
  return at::matmul(a, b.transpose(-1, -2));
}

// A zero vector has no direction: it stays zero, and so is its gradient.
at::Tensor UnitVector(const at::Tensor& x) {
  const at::Tensor squared_norm = x.square().sum(-1, /*keepdim=*/true);
  const at::Tensor is_zero = squared_norm.eq(0);
  const at::Tensor norm = at::where(is_zero, at::ones_like(squared_norm), squared_norm).sqrt();
  return (x / norm).masked_fill(is_zero, 0);
}

// By differences, never as |a|^2 - 2ab + |b|^2, which cancels for close vectors.
at::Tensor EuclideanDistance(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kWithoutMatrixProduct = 2;
  return at::cdist(a, b, /*p=*/2, kWithoutMatrixProduct);
}

at::Tensor NegativeDistance(const at::Tensor& a, const at::Tensor& b) {
  return EuclideanDistance(a, b).clamp_min(1e-15).neg();
}

at::Tensor NegativeSquaredDistance(const at::Tensor& a, const at::Tensor& b) {
  return EuclideanDistance(a, b).square().neg();
}

// Losses.

at::Tensor Softplus(const at::Tensor& x) { return at::log_sigmoid(x.neg()).neg(); }

at::Tensor RankingLoss(const at::Tensor& pos, const at::Tensor& neg, const LossOptions& options) {
  return (neg - pos.unsqueeze(1) + options.margin).clamp_min(0).sum(1);
}

at::Tensor LogisticLoss(const at::Tensor& pos, const at::Tensor& neg, const LossOptions&) {
  const at::Tensor loss = Softplus(pos.neg());
  return neg.size(1) == 0 ? loss : loss + Softplus(neg).mean(1);
}

// -log(e^pos / (e^pos + sum_j e^neg_j))
at::Tensor SoftmaxLoss(const at::Tensor& pos, const at::Tensor& neg, const LossOptions&) {
  if (neg.size(1) == 0) return at::zeros_like(pos);
  return Softplus(neg.logsumexp(1) - pos);
}

}  // namespace

std::vector<OperatorDefinition> BuiltinOperators(bool dynamic) {
  const std::string s = dynamic ? "s" : "";  // PBG's names are plurals then, but for real and imag
  return {
      {
          .name = "none",
          .parameters = [](int64_t) { return Parameters{}; },
          .forward = Identity,
      },
      {
          .name = "translation",
          .parameters =
              [s](int64_t d) {
                return Parameters{{absl::StrCat("translation", s), {d}}};
              },
          .forward = Translate,
      },
      {
          .name = "diagonal",
          .parameters =
              [s](int64_t d) {
                return Parameters{{absl::StrCat("diagonal", s), {d}, Ones(d)}};
              },
          .forward = ScaleCoordinates,
      },
      {
          .name = "linear",
          .parameters =
              [s](int64_t d) {
                return Parameters{
                    {absl::StrCat("linear_transformation", s), {d, d}, IdentityMatrix(d)}};
              },
          .forward = MatrixTimesVector,
      },
      {
          .name = "affine",
          .parameters =
              [s](int64_t d) {
                return Parameters{
                    {absl::StrCat("linear_transformation", s), {d, d}, IdentityMatrix(d)},
                    {absl::StrCat("translation", s), {d}}};
              },
          .forward = MatrixTimesVectorPlusVector,
      },
      {
          .name = "complex_diagonal",
          .parameters =
              [](int64_t d) {
                return Parameters{{"real", {d / 2}, Ones(d / 2)}, {"imag", {d / 2}}};
              },
          .forward = ComplexProduct,
          .complex = true,
          .squared_moduli = SquaredComplexModuli,
      },
  };
}

std::vector<ComparatorDefinition> BuiltinComparators() {
  return {
      {.name = "dot", .score = InnerProduct},
      {.name = "cos", .prepare = UnitVector, .score = InnerProduct},
      {.name = "l2", .score = NegativeDistance},
      {.name = "squared_l2", .score = NegativeSquaredDistance},
  };
}

std::vector<LossDefinition> BuiltinLosses() {
  return {
      {.name = "ranking", .forward = RankingLoss},
      {.name = "logistic", .forward = LogisticLoss},
      {.name = "softmax", .forward = SoftmaxLoss},
  };
}

}  // namespace weft::nn
