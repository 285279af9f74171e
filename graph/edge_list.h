// EdgeList is a list of edges in memory, by column.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/types.h"

namespace weft {

struct EdgeList {
  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
  std::vector<RelationTypeId> rel;
  std::vector<float> weight;  // empty: every edge weighs 1

  int64_t size() const { return static_cast<int64_t>(lhs.size()); }
  bool weighted() const { return !weight.empty(); }
};

}  // namespace weft
