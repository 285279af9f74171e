// EntityIndex numbers the entities of each type through all of its partitions: partition 0's
// offsets first, then partition 1's, and so on.
//
// Thread-safety: constant after construction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/common/types.h"

namespace weft {

// Where an entity of a known type lies.
struct EntityPosition {
  PartitionId partition = 0;
  EntityOffset offset = 0;
  auto operator<=>(const EntityPosition&) const = default;
};

class EntityIndex {
 public:
  // counts[type][partition]: entities there.
  explicit EntityIndex(const std::vector<std::vector<int64_t>>& counts) {
    for (const std::vector<int64_t>& of_type : counts) {
      std::vector<int64_t>& begins = begins_.emplace_back(1, 0);
      for (const int64_t count : of_type) begins.push_back(begins.back() + count);
    }
  }

  int num_types() const { return static_cast<int>(begins_.size()); }
  int num_partitions(EntityTypeId type) const { return static_cast<int>(begins_[type].size()) - 1; }
  int64_t count(EntityTypeId type) const { return begins_[type].back(); }
  // The number of the first entity of `partition`; of the last partition + 1: count(type).
  int64_t begin(EntityTypeId type, PartitionId partition) const { return begins_[type][partition]; }
  int64_t count(EntityTypeId type, PartitionId partition) const {
    return begin(type, partition + 1) - begin(type, partition);
  }

  // The partition of `type` that a bucket's partition stands for on one side: a type that is not
  // partitioned is whole in every bucket.
  PartitionId InBucket(EntityTypeId type, PartitionId partition) const {
    return num_partitions(type) == 1 ? 0 : partition;
  }

  EntityPosition PositionOf(EntityTypeId type, int64_t number) const {
    const std::vector<int64_t>& begins = begins_[type];
    WEFT_DCHECK(number >= 0 && number < begins.back());
    const auto next = std::upper_bound(begins.begin(), begins.end(), number);
    const auto partition = static_cast<PartitionId>(next - begins.begin() - 1);
    return {partition, static_cast<EntityOffset>(number - begins[partition])};
  }

 private:
  std::vector<std::vector<int64_t>> begins_;  // [type][partition], and the count at the end
};

}  // namespace weft
