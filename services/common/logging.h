// Logging: one line per state change, to standard error, for people or for machines.
//
//   LogInfo("bucket trained", {{"pass", pass}, {"bucket", "(0,1)"}, {"edges", edges}});
//
//   2026-12-01 12:00:00.123 I weft-trainer] bucket trained: pass=3 bucket=(0,1) edges=500
//   {"time":"2026-12-01T12:00:00.123Z","level":"info","program":"weft-trainer",
//    "event":"bucket trained","run":"7f2a","trainer":"t-0","pass":3,"bucket":"(0,1)","edges":500}
//
// The second is one line, too. Texts may hold any bytes: what is not UTF-8 is replaced, numbers
// that JSON does not have are null. Debug lines are off unless verbose >= 1 (PBG's key).
//
// Thread-safety: may be called from any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/common/log_event.h"

namespace weft {

enum class LogFormat : uint8_t { kText, kJson };

// Sets up the process's log. Call once, in main.
void InitLogging(absl::string_view program, LogFormat format = LogFormat::kText);

// Lines below are not written.
void SetLogLevel(LogEvent::Level level);
// Debug lines on or off: the run configuration's `verbose`, known only after logging began.
void SetLogVerbosity(int verbose);

// Which run this is, and who: in every JSON line from now on, before the event's own fields.
void SetLogContext(std::vector<LogField> context);

void Log(const LogEvent& event);
inline void LogInfo(absl::string_view what, std::vector<LogField> fields = {}) {
  Log(LogEvent(what, std::move(fields), LogEvent::Level::kInfo));
}
inline void LogWarning(absl::string_view what, std::vector<LogField> fields = {}) {
  Log(LogEvent(what, std::move(fields), LogEvent::Level::kWarning));
}
inline void LogError(absl::string_view what, std::vector<LogField> fields = {}) {
  Log(LogEvent(what, std::move(fields), LogEvent::Level::kError));
}

// What was written is on its way when this returns; the last thing before _Exit.
void FlushLog();

}  // namespace weft
