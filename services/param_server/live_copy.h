// Copies floats that HOGWILD threads may be writing: each copied value is one that was there.
//
// Together with the row kernels, the only place where a race on the model's values is meant.
#pragma once

#include <cstddef>

namespace weft {

void CopyLiveFloats(const float* from, size_t count, float* to);

}  // namespace weft
