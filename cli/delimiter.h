// The character that stands between columns, or between features, as a flag names it.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace weft::cli {

// One character, or tab, comma, space, semicolon, pipe; '\0' when it is neither.
char ParseDelimiter(const std::string& text);

// An option for one: others are refused.
CLI::Option* AddDelimiterOption(CLI::App& command, const std::string& flag, std::string* text,
                                const std::string& description);

}  // namespace weft::cli
