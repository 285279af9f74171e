// ParameterSet holds the dense parameters that all trainers share: relation operators and global
// embeddings, with their Adagrad state. Names are PBG's public ones:
// `relations/0/operator/rhs/real`, `entities/user/global_embedding`.
//
// The order of the parameters is PBG's optimizer order: lhs operators by relation, rhs operators by
// relation, then global embeddings by entity type in the order of the configuration.
// Thread-safety: the set of parameters is constant after construction; values are written by
// HOGWILD threads without locks (see services/trainer/kernels/row_ops.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "services/common/changed_rows.h"
#include "services/common/float_block.h"

namespace weft {

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;  // for one parameter per dynamic relation: [relations, ...]
  FloatBlock values;           // [shape[0], product of the rest]; [1, n] for a vector of n
  FloatBlock adagrad_sums;     // as values; AsyncAdagrad's element-wise sums
  ChangedRows changed;         // rows of both that were written; empty: not tracked

  int64_t size() const { return values.size(); }
};

class ParameterSet {
 public:
  ParameterSet() = default;
  ParameterSet(ParameterSet&&) = default;
  ParameterSet& operator=(ParameterSet&&) = default;

  // Appends a zero-filled parameter and returns it. The reference stays valid until the next Add.
  // `rows` x `cols` is the shape of its block: rows are what is updated and exchanged as a unit.
  Parameter& Add(std::string name, std::vector<int64_t> shape, int64_t rows, int64_t cols);

  // nullptr when there is none of that name.
  Parameter* Find(std::string_view name);
  const Parameter* Find(std::string_view name) const;

  std::vector<Parameter>& all() { return parameters_; }
  const std::vector<Parameter>& all() const { return parameters_; }
  bool empty() const { return parameters_.empty(); }

  // AsyncAdagrad's step count (PBG stores one per parameter; here all take every step).
  int64_t steps = 0;

 private:
  std::vector<Parameter> parameters_;
};

}  // namespace weft
