// A port of this machine that nobody listens on now, for servers whose address has to be known
// before they start.
#pragma once

#include <cstdint>

namespace weft::testing {

// Test failures say what went wrong.
uint16_t FreePort();

}  // namespace weft::testing
