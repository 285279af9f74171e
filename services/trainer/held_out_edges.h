// HeldOutEdges says which edges of a bucket are kept from training, for evaluation (PBG's
// `eval_fraction`).
//
// The choice is a function of (seed, edge path, bucket, number of edges in the bucket): another
// attempt, trainer, pass or number of edge chunks holds out the same edges. Of n edges exactly
// floor(fraction * n) are held out: the bucket is cut into that many strata of almost equal size,
// and one position is drawn in each.
//
// Thread-safety: constant after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "services/common/edge_chunk.h"
#include "services/common/types.h"

namespace weft {

class HeldOutEdges {
 public:
  // `num_edges`: of the whole bucket, whatever the chunk. 0 <= fraction < 1.
  HeldOutEdges(uint64_t seed, int edge_path, Bucket bucket, int64_t num_edges, double fraction);

  // floor(fraction * num_edges)
  int64_t count() const { return count_; }

  // The held-out positions within `range` of the bucket, ascending and unique.
  std::vector<int64_t> InRange(EdgeRange range) const;

 private:
  int64_t StratumBegin(int64_t i) const;

  const int64_t num_edges_;
  const int64_t count_;
  std::array<uint32_t, 2> key_;
};

}  // namespace weft
