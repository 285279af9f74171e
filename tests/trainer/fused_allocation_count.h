// Counts calls of operator new in the whole test binary.
#pragma once

#include <cstdint>

namespace weft::testing {

// False under a sanitizer, whose own operator new is kept.
bool CountsAllocations();
int64_t NumAllocations();

}  // namespace weft::testing
