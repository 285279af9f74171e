// The order in which the buckets of a pass are to be trained: PBG's four, and BETA.
//
// An order is a wish: the scheduler follows it as far as locks and what trainers hold in memory
// leave a choice. Each order is a function of its arguments alone, holds every bucket of
// [0, num_lhs) x [0, num_rhs) exactly once, and takes time linear in their number.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/run_config.h"
#include "services/common/types.h"

namespace weft {

// random      all buckets, shuffled.
// affinity    a walk: after a bucket its transpose, then a random bucket that shares a partition
//             with it, while there is one.
// outside_in  layer 0, layer 1, ...; layer i has the buckets whose smaller partition is i,
// shuffled,
//             a bucket and its transpose together.
// inside_out  the same layers, the last one first: partitions with high numbers come early and
//             often, and each further one meets all that were trained before it.
std::vector<Bucket> MakeBucketOrder(BucketOrder order, int num_lhs, int num_rhs, uint64_t seed,
                                    int64_t pass);

// For one trainer that keeps `resident` >= 2 of `num_partitions` partitions in memory, on both
// sides: resident - 1 of them stay while all others pass through the remaining place; then they are
// finished and replaced. It loads about (P(P-1)/2 - c(c-1)/2) / (c-1) partitions a pass beyond the
// first c, which no order can undercut by much.
// Source: BETA, in Mohoney et al., "Marius: Learning Massive Graph Embeddings on a Single Machine",
// OSDI 2021.
std::vector<Bucket> MakeBetaOrder(int num_partitions, int resident, uint64_t seed, int64_t pass);

}  // namespace weft
