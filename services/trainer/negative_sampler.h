// Draws the uniform negatives of a batch, as a function of (seed, pass, bucket, batch) alone: the
// samples do not depend on threads.
#pragma once

#include <cstdint>

#include "services/common/types.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

// Identifies a batch in a run.
struct BatchKey {
  uint64_t seed = 0;
  int64_t pass = 0;
  Bucket bucket;
  int64_t batch = 0;
};

// Fills `negatives` for a batch of `num_edges` edges of `relation` over tables of the given counts
// (>= 1). Reuses its memory.
void SampleNegatives(const ModelSpec& spec, RelationTypeId relation, int64_t num_edges,
                     int64_t lhs_count, int64_t rhs_count, const BatchKey& key,
                     SampledNegatives* negatives);

}  // namespace weft
