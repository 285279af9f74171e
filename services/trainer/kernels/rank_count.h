// Counting kernels of ranking: how many scores lie above a threshold or equal it, and whether all
// values are finite. Vectorized with Highway, for the best instruction set of the CPU at hand; the
// results are integers and the same on every one.
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

namespace weft {

struct RankCount {
  int64_t above = 0;
  int64_t ties = 0;
};

// scores: [n], any alignment. How many are > threshold and == threshold. NaN is neither: test the
// scores with FindNonFinite first.
RankCount CountAboveAndTies(const float* scores, int64_t n, float threshold);

// The position of the first NaN or infinity among values [n]; n when all are finite.
int64_t FindNonFinite(const float* values, int64_t n);

}  // namespace weft
