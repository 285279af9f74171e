#include "services/trainer/negative_sampler.h"

#include <array>

#include "services/common/random.h"
#include "services/trainer/kernels/uniform_indices.h"

namespace weft {

void SampleNegatives(const ModelSpec& spec, RelationTypeId relation, int64_t num_edges,
                     int64_t lhs_count, int64_t rhs_count, const BatchKey& key,
                     SampledNegatives* negatives) {
  const int64_t chunk_size = spec.NegativeChunkSize(relation, num_edges);
  const int64_t num_chunks = (num_edges + chunk_size - 1) / chunk_size;
  const uint64_t where = (static_cast<uint64_t>(static_cast<uint32_t>(key.bucket.lhs)) << 32) |
                         static_cast<uint32_t>(key.bucket.rhs);
  const uint64_t when = (static_cast<uint64_t>(key.pass) << 40) | static_cast<uint64_t>(key.batch);
  // A stream for the batch, and in it a counter word for each side.
  RandomStream random(key.seed, RandomUse::kNegatives, where, when);
  const std::array<uint32_t, 2> philox_key = {random(), random()};
  const std::array<uint32_t, 2> rest = {random(), random()};
  auto draw = [&](Side side, int64_t count, std::vector<EntityOffset>* out) {
    const int64_t n = num_chunks * spec.UniformNegatives(relation, side);
    out->resize(static_cast<size_t>(n));
    FillUniformIndices(philox_key, {static_cast<uint32_t>(side), rest[0], rest[1]}, n,
                       static_cast<uint32_t>(count), out->data());
  };
  draw(Side::kLhs, lhs_count, &negatives->lhs);
  draw(Side::kRhs, rhs_count, &negatives->rhs);
}

}  // namespace weft
