// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

// Bytes that can be had without swapping: what the kernel calls available, or less when a control
// group (version 1 or 2) of this process, or one above it, has a limit. Pages of files count as
// free. None when it cannot be known. `root` stands for "/" in tests.
std::optional<int64_t> AvailableMemory(const std::string& root = "");

}  // namespace weft
