// The registries of what the LibTorch implementation can compute: operators, comparators and
// losses, by the name that a configuration uses. This is how an operator of your own comes into a
// run; the built-in ones are registered the same way (builtins.cc):
//
//   weft::nn::RegisterOperator({
//       .name = "scaling",
//       .parameters = [](int64_t) { return weft::nn::Parameters{{"factor", {1}, {1.0f}}}; },
//       .forward = [](const at::Tensor& x, const weft::nn::Tensors& p) { return x * p[0]; },
//   });
//
// Register before the configuration is read. Gradients come from autograd, so everything here has
// to be differentiable; tensors are float32 or float64 (make new ones with the options of the
// inputs). A function may throw c10::Error: the step then answers Internal.
//
// Shapes: m vectors of dimension d.
// Thread-safety: registering is not thread-safe; the functions are called by all workers at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace at {
class Tensor;
}

namespace weft::nn {

using Tensors = std::vector<at::Tensor>;

// One parameter of an operator, as one relation has it.
struct ParameterDefinition {
  std::string name;              // last part of its public name: "translation"
  std::vector<int64_t> shape;    // not empty
  std::vector<float> initial{};  // row-major; empty: zeros
};
using Parameters = std::vector<ParameterDefinition>;

struct OperatorDefinition {
  std::string name;
  // The parameters for vectors of dimension `dim`.
  std::function<Parameters(int64_t dim)> parameters{};
  // Transforms x: [m, d] -> [m, d]. `p` has one tensor for each parameter, in their order: of the
  // shape [shape...] for static relations, and [m, shape...], the parameters of each vector's own
  // relation, for dynamic ones. Where the two broadcast alike, one function serves both.
  std::function<at::Tensor(const at::Tensor& x, const Tensors& p)> forward{};
  // For the regularizer: the operator acts on complex numbers, coordinates i and i + d/2 being the
  // real and the imaginary part of one; their moduli are penalized instead of absolute values.
  bool complex = false;
  // For the regularizer: the squares of the parameters' moduli, in any shape. Empty: of each
  // number.
  std::function<at::Tensor(const Tensors& p)> squared_moduli{};
};

struct ComparatorDefinition {
  std::string name;
  // Prepares each vector once, before it is compared with many: [m, d] -> [m, d]. Empty: as it is.
  std::function<at::Tensor(const at::Tensor& x)> prepare{};
  // Scores all pairs within each chunk; larger is closer. Symmetric in a and b.
  // a: [c, p, d], b: [c, q, d] -> [c, p, q]. q may be 0.
  std::function<at::Tensor(const at::Tensor& a, const at::Tensor& b)> score{};
};

struct LossOptions {
  double margin = 0;
};

struct LossDefinition {
  std::string name;
  // The loss of each edge against its negatives, before weights. pos: [n], neg: [n, m] -> [n].
  // m may be 0; a score of -1e9 stands for a pair that is not to be compared.
  std::function<at::Tensor(const at::Tensor& pos, const at::Tensor& neg, const LossOptions&)>
      forward{};
};

// Errors: InvalidArgument when the name or a function is missing, AlreadyExists.
// Static and dynamic relations have registries of their own, as their parameters' names differ.
absl::Status RegisterOperator(OperatorDefinition definition);
absl::Status RegisterDynamicOperator(OperatorDefinition definition);
absl::Status RegisterComparator(ComparatorDefinition definition);
absl::Status RegisterLoss(LossDefinition definition);

// nullptr when there is none of that name. Pointers stay valid for ever.
const OperatorDefinition* FindOperator(std::string_view name, bool dynamic);
const ComparatorDefinition* FindComparator(std::string_view name);
const LossDefinition* FindLoss(std::string_view name);

// All names, built-in ones included, in alphabetical order; of operators those of either registry.
struct RegisteredNames {
  std::vector<std::string> operators;
  std::vector<std::string> comparators;
  std::vector<std::string> losses;
};
RegisteredNames AllRegisteredNames();

}  // namespace weft::nn
