// Checks that text is UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates).
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

inline constexpr size_t kWholeText = static_cast<size_t>(-1);

// The index of the first byte that cannot be part of UTF-8 text; kWholeText when there is none.
size_t FindInvalidUtf8(std::string_view text);

// Whether every byte is in 1..127: valid UTF-8 at a glance. 16 bytes a step where SSE2 is there.
bool IsAsciiWithoutNul(std::string_view text);

}  // namespace weft
