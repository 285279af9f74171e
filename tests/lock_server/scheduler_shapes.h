// Shapes of runs for the bucket scheduler.
#pragma once

#include <vector>

#include "services/lock_server/bucket_scheduler.h"

namespace weft::testing {

inline constexpr auto kNoFurther = [](const std::vector<Bucket>&, Bucket) { return false; };
inline constexpr auto kAllFurther = [](const std::vector<Bucket>&, Bucket) { return true; };

// One entity type, on both sides.
inline BucketScheduler::Options OneType(int partitions) {
  return {.num_lhs = partitions,
          .num_rhs = partitions,
          .types = {{.id = 0, .lhs = true, .rhs = true, .bytes = 100}}};
}

// Users on the left, items on the right.
inline BucketScheduler::Options Bipartite(int users, int items) {
  return {.num_lhs = users,
          .num_rhs = items,
          .types = {{.id = 0, .lhs = true, .rhs = false, .bytes = 100},
                    {.id = 1, .lhs = false, .rhs = true, .bytes = 1}}};
}

inline std::vector<Bucket> Lexicographic(int num_lhs, int num_rhs) {
  std::vector<Bucket> order;
  for (int l = 0; l < num_lhs; ++l) {
    for (int r = 0; r < num_rhs; ++r) order.push_back({l, r});
  }
  return order;
}

}  // namespace weft::testing
