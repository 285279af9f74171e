// Reads and writes floats that HOGWILD threads are writing: no value is torn.
//
// Together with the row kernels, the only place where a race on the model's values is meant: an
// update that falls between the load and the store of an addition may be lost, as among workers.
#pragma once

#include <cstddef>

namespace weft {

// Each copied value is one that was there.
void CopyLiveFloats(const float* from, size_t count, float* to);

// Moves live values from `base` to `target`, keeping what they have gained since they were `base`:
// live += target - base; exactly `target` where live == base.
void MoveLiveFloats(const float* base, const float* target, size_t count, float* live);

}  // namespace weft
