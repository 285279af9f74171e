// FeatureGroups decides the partitions of the features of a featurized type. Features that some
// entity has together form a group, directly or through others, and a group lies in one partition:
// so an entity has all of its features in the partition of the bucket that its edges are in.
//
// Memory: 4 bytes a feature; Place takes 28 more.
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "services/common/types.h"

namespace weft {

class FeatureGroups {
 public:
  struct Placement {
    std::vector<PartitionId> partitions;  // by feature; 0 of those that are not placed
    int64_t largest_group = 0;            // features
    int64_t largest_partition = 0;
  };

  // Features are 0 to `num_features` - 1, each in a group of its own.
  explicit FeatureGroups(size_t num_features);

  // One entity has these features.
  void Join(std::span<const EntityOffset> features);

  // The largest group first, each into the partition that has the fewest features so far. Groups
  // of equal size come in the order of their first names, so that the result depends on groups and
  // names only. `features`: those to place, each once. `names`: of all features.
  Placement Place(std::span<const uint32_t> features, std::span<const std::string_view> names,
                  int num_partitions);

 private:
  uint32_t GroupOf(uint32_t feature);

  std::vector<uint32_t> parent_;  // by feature; a group's root is its own parent
};

}  // namespace weft
