// BagIndex numbers the entities of featurized types, which have no rows of their own: entities with
// the same features, in any order, are one. For each type it keeps the bags by number.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "services/common/feature_bags.h"
#include "services/common/float_block.h"
#include "services/common/types.h"

namespace weft {

class BagIndex {
 public:
  static constexpr int64_t kUnknown = -1;

  explicit BagIndex(size_t num_types) : types_(num_types) {}

  // The number of this entity; a new one when `add`, else kUnknown.
  int64_t Number(EntityTypeId type, std::span<const EntityOffset> bag, bool add);
  // By number.
  const FeatureBags& bags(EntityTypeId type) const {
    return types_[static_cast<size_t>(type)].bags;
  }

 private:
  struct Type {
    FeatureBags bags;
    std::map<std::vector<EntityOffset>, int64_t> numbers;  // by sorted features
  };

  std::vector<Type> types_;
};

// The vectors of these entities, [bags, dimension]. `features`: the type's table; max_norm > 0: its
// rows count with at most this 2-norm.
FloatBlock MeansOfFeatures(const FloatBlock& features, const FeatureBags& bags, float max_norm);

}  // namespace weft
