#include "services/common/embedding_partition.h"

#include <xxhash.h>

namespace weft {

uint64_t Checksum(const EmbeddingPartition& partition) {
  const auto bytes = [](const FloatBlock& block) {
    return static_cast<size_t>(block.size()) * sizeof(float);
  };
  const uint64_t vectors = XXH3_64bits(partition.embeddings.data(), bytes(partition.embeddings));
  return XXH3_64bits_withSeed(partition.adagrad_sums.data(), bytes(partition.adagrad_sums),
                              vectors);
}

}  // namespace weft
