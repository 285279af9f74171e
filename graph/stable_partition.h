// The stable partition of an entity: XXH3-64 (seed 0) of `type \0 name`, modulo the number of
// partitions of its type. It depends on nothing else, so new entities can be appended to a trained
// model without moving the old ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/common/types.h"

namespace weft {

// XXH3-64 (seed 0) of `bytes`.
uint64_t HashBytes(std::string_view bytes);

// EntityHasher hashes names of one entity type. Not thread-safe: it keeps `type \0` in a buffer and
// puts the name behind it.
class EntityHasher {
 public:
  explicit EntityHasher(std::string_view type);

  uint64_t operator()(std::string_view name);

 private:
  size_t prefix_bytes_;
  std::vector<char> buffer_;
};

// `num_partitions` >= 1.
inline PartitionId StablePartition(uint64_t entity_hash, int num_partitions) {
  if (num_partitions == 1) return 0;
  return static_cast<PartitionId>(entity_hash % static_cast<uint64_t>(num_partitions));
}

// For single look-ups; EntityHasher is the fast way.
PartitionId StablePartition(std::string_view type, std::string_view name, int num_partitions);

}  // namespace weft
