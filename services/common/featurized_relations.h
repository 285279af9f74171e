// Which relations of a configuration have featurized entities on a side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "services/common/run_config.h"
#include "services/common/types.h"

namespace weft {

// By relation: 1 if the entities on `side` are featurized, else 0. Empty: none are.
inline std::vector<uint8_t> FeaturizedRelations(const RunConfig& config, Side side) {
  std::vector<uint8_t> featurized;
  for (const RelationConfig& relation : config.relations) {
    const EntityTypeId type = side == Side::kLhs ? relation.lhs : relation.rhs;
    featurized.push_back(config.entities[static_cast<size_t>(type)].featurized ? 1 : 0);
  }
  if (std::ranges::find(featurized, 1) == featurized.end()) featurized.clear();
  return featurized;
}

}  // namespace weft
