#include "services/common/parameter_set.h"

#include <utility>

#include "services/common/check.h"

namespace weft {

Parameter& ParameterSet::Add(std::string name, std::vector<int64_t> shape, int64_t rows,
                             int64_t cols) {
  WEFT_CHECK(Find(name) == nullptr);
  Parameter& p = parameters_.emplace_back();
  p.name = std::move(name);
  p.shape = std::move(shape);
  p.values = FloatBlock(rows, cols);
  p.adagrad_sums = FloatBlock(rows, cols);
  return p;
}

Parameter* ParameterSet::Find(std::string_view name) {
  for (Parameter& p : parameters_) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

const Parameter* ParameterSet::Find(std::string_view name) const {
  return const_cast<ParameterSet*>(this)->Find(name);
}

}  // namespace weft
