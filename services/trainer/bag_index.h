// BagIndex numbers the entities of featurized types, which have no rows of their own: entities with
// the same features, in any order, are one. For each type it keeps the bags by number, and the
// partition that the features of each are in.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "services/common/feature_bags.h"
#include "services/common/float_block.h"
#include "services/common/types.h"

namespace weft {

class BagIndex {
 public:
  static constexpr int64_t kUnknown = -1;

  explicit BagIndex(size_t num_types) : types_(num_types) {}

  // The number of the entity with these features of a partition; a new one when `add`, else
  // kUnknown.
  int64_t Number(PartitionKey features, std::span<const EntityOffset> bag, bool add);
  // By number.
  const FeatureBags& bags(EntityTypeId type) const {
    return types_[static_cast<size_t>(type)].bags;
  }
  const std::vector<PartitionId>& partitions(EntityTypeId type) const {
    return types_[static_cast<size_t>(type)].partitions;
  }

 private:
  struct Type {
    FeatureBags bags;
    std::vector<PartitionId> partitions;
    // By partition and sorted features.
    std::map<std::pair<PartitionId, std::vector<EntityOffset>>, int64_t> numbers;
  };

  std::vector<Type> types_;
};

// Writes the vector of an entity to `mean`. `features`: the table of the bag's partition; max_norm
// > 0: its rows count with at most this 2-norm.
void MeanOfFeatures(const FloatBlock& features, std::span<const EntityOffset> bag, float max_norm,
                    std::span<float> mean);

}  // namespace weft
