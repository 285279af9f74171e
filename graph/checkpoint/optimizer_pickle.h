// An optimizer's state as PBG stores it: the bytes of `torch.save(optimizer.state_dict())`, a zip
// archive of one pickle and of the tensors' storages:
//
//   archive/data.pkl   {'state': {0: {'sum': tensor, ...}, ...}, 'param_groups': [{'lr': ..., ...,
//                      'params': [0, ...]}]}; {} for a model without parameters
//   archive/data/N     storage N, float32
//   archive/version    "3\n"
//
// Row-wise Adagrad has one parameter (the table) whose `sum` has one number a row. AsyncAdagrad has
// one entry a parameter, with `step` (a scalar tensor; an integer in older files) and `sum` of the
// parameter's shape.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/checkpoint/random_access.h"

namespace weft {

enum class OptimizerKind { kRowAdagrad, kAsyncAdagrad };

struct OptimizerState {
  struct Parameter {
    std::vector<int64_t> shape;  // of the sum
    std::span<const float> sum;  // borrowed
  };

  OptimizerKind kind = OptimizerKind::kRowAdagrad;
  double lr = 0;
  int64_t steps = 0;  // AsyncAdagrad: of every parameter
  std::vector<Parameter> parameters;
};

// Writes `state` and returns its size in bytes; `sink` nullptr: only the size is wanted.
absl::StatusOr<int64_t> WriteOptimizerState(const OptimizerState& state, RandomAccessSink* sink);

// Thread-safety: none.
class OptimizerStateReader {
 public:
  struct Parameter {
    std::vector<int64_t> shape;  // of the sum
    int64_t steps = 0;
  };

  // `source` must outlive the reader.
  // Errors: DataLoss for what is damaged or no optimizer's state (files of torch before 1.6, which
  // are no archives, are refused by name); those of `source`.
  static absl::StatusOr<OptimizerStateReader> Open(const RandomAccessSource* source);
  ~OptimizerStateReader();
  OptimizerStateReader(OptimizerStateReader&&) noexcept;
  OptimizerStateReader& operator=(OptimizerStateReader&&) noexcept;

  // In the order of the optimizer's parameters.
  const std::vector<Parameter>& parameters() const;

  // Reads a parameter's sum into `out`, which must have its size. Errors: DataLoss.
  absl::Status ReadSum(size_t parameter, std::span<float> out) const;

 private:
  struct Impl;
  explicit OptimizerStateReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft
