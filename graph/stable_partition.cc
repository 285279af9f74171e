#include "graph/stable_partition.h"

#define XXH_INLINE_ALL  // names are short: a call costs as much as the hash
#include <xxhash.h>

#include <cstring>

namespace weft {

uint64_t HashBytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

EntityHasher::EntityHasher(std::string_view type)
    : prefix_bytes_(type.size() + 1), buffer_(prefix_bytes_ + 256) {
  if (!type.empty()) std::memcpy(buffer_.data(), type.data(), type.size());
  buffer_[type.size()] = '\0';
}

uint64_t EntityHasher::operator()(std::string_view name) {
  const size_t size = prefix_bytes_ + name.size();
  if (size > buffer_.size()) buffer_.resize(size);
  if (!name.empty()) std::memcpy(buffer_.data() + prefix_bytes_, name.data(), name.size());
  return XXH3_64bits(buffer_.data(), size);
}

PartitionId StablePartition(std::string_view type, std::string_view name, int num_partitions) {
  EntityHasher hasher(type);
  return StablePartition(hasher(name), num_partitions);
}

}  // namespace weft
