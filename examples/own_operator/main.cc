// The program `weft` with one operator more: `rotation`, as in RotatE (Sun et al.: "RotatE:
// Knowledge Graph Embedding by Relational Rotation in Complex Space", ICLR 2019). A vector is read
// as d/2 complex numbers, real parts first; a relation turns each of them by an angle of its own.
//
// Every command works as in `weft`; a configuration may say `"operator": "rotation"`, with
// `"compute": "reference"`.

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "cli/commands.h"
#include "cli/reference_hook.h"
#include "services/trainer/nn/reference_factory.h"
#include "services/trainer/nn/registry.h"

namespace {

using weft::nn::OperatorDefinition;
using weft::nn::Parameters;
using weft::nn::Tensors;

at::Tensor Rotate(const at::Tensor& x, const Tensors& p) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor re = x.narrow(-1, 0, half);
  const at::Tensor im = x.narrow(-1, half, half);
  const at::Tensor cos = p[0].cos();
  const at::Tensor sin = p[0].sin();
  return at::cat({re * cos - im * sin, re * sin + im * cos}, -1);
}

// `parameter`: what checkpoints and exports call the angles.
OperatorDefinition Rotation(const std::string& parameter) {
  return {
      .name = "rotation",
      .parameters =
          [parameter](int64_t d) {
            return Parameters{{parameter, {d / 2}}};
          },
      .forward = Rotate,
      .complex = true,  // the regularizer takes moduli of vectors,
      .squared_moduli = [](const Tensors& p) { return p[0] * 0; },  // and leaves angles alone
  };
}

}  // namespace

int main(int argc, char** argv) {
  for (const absl::Status& status : {weft::nn::RegisterOperator(Rotation("angle")),
                                     weft::nn::RegisterDynamicOperator(Rotation("angles"))}) {
    if (!status.ok()) {
      std::cerr << status.message() << "\n";
      return 1;
    }
  }
  weft::ConfigOptions names;
  names.extra_operators = {"rotation"};
  weft::cli::SetReferenceFactory(&weft::nn::ReferenceFactory(), names);
  return weft::cli::Main(argc, argv);
}
