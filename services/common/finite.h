// Looking for numbers that are not finite.
#pragma once

#include <cstddef>
#include <span>

namespace weft {

// The place of the first value that is NaN or infinite; values.size() when there is none.
size_t FirstNotFinite(std::span<const float> values);

}  // namespace weft
