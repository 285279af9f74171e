// Commands that are printed for somebody to copy.
#pragma once

#include <string>
#include <string_view>

namespace weft::cli {

// `text` as one word of a POSIX shell: quoted where it needs to be.
std::string ShellWord(std::string_view text);

}  // namespace weft::cli
