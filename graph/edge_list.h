// EdgeList is a list of edges in memory, by column.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/feature_bags.h"
#include "services/common/types.h"

namespace weft {

struct EdgeList {
  // An entity of a featurized type has no offset.
  static constexpr EntityOffset kFeaturized = -1;

  std::vector<EntityOffset> lhs;
  std::vector<EntityOffset> rhs;
  std::vector<RelationTypeId> rel;
  std::vector<float> weight;  // empty: every edge weighs 1
  // By side: the features of each edge's entity, an empty bag where it has an offset. No bags: all
  // have.
  FeatureBags features[2];

  int64_t size() const { return static_cast<int64_t>(lhs.size()); }
  bool weighted() const { return !weight.empty(); }
  bool featurized() const { return !features[0].empty() || !features[1].empty(); }
  const std::vector<EntityOffset>& ids(Side side) const { return side == Side::kLhs ? lhs : rhs; }
};

}  // namespace weft
