// FillUniformIndices draws entities: the uniform negatives of a batch.
//
// Equal to the bit on every CPU. Thread-safety: may be called from any thread.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

// Fills out[0, n) with numbers uniform in [0, bound), 1 <= bound < 2^31; the bias is below
// bound / 2^32. Number 4 b + j is made of word j of Philox(counter {b, c1, c2, c3}, key), where
// c = `counter`.
void FillUniformIndices(std::array<uint32_t, 2> key, std::array<uint32_t, 3> counter, int64_t n,
                        uint32_t bound, int32_t* out);

}  // namespace weft
