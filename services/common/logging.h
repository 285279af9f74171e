// Logging: one line per state change, to standard error, key=value fields after the message.
//
//   WEFT_LOG_INFO("bucket done: pass={} bucket=({},{}) edges={}", pass, lhs, rhs, edges);
//
// Formats are fmt's. Debug lines are compiled in and off unless verbose >= 1 (PBG's key).
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace weft {

// Sets up the process's logger. Call once, in main.
void InitLogging(std::string_view program, int verbose);

// Debug lines on or off: the run configuration's `verbose`, known only after logging began.
void SetLogVerbosity(int verbose);

}  // namespace weft

#define WEFT_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define WEFT_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define WEFT_LOG_WARNING(...) ::spdlog::warn(__VA_ARGS__)
#define WEFT_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
