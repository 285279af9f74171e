#include "services/common/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/mutex.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// Of the process; the program's name is the logger's.
struct State {
  std::atomic<LogFormat> format = LogFormat::kText;
  Mutex mu;
  std::vector<LogField> context ABSL_GUARDED_BY(mu);
};

State& TheState() {
  static State* const state = new State;  // threads may log until the end
  return *state;
}

spdlog::level::level_enum LevelOf(LogEvent::Level level) {
  switch (level) {
    case LogEvent::Level::kDebug:
      return spdlog::level::debug;
    case LogEvent::Level::kInfo:
      return spdlog::level::info;
    case LogEvent::Level::kWarning:
      return spdlog::level::warn;
    case LogEvent::Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

std::string_view LevelWord(LogEvent::Level level) {
  switch (level) {
    case LogEvent::Level::kDebug:
      return "debug";
    case LogEvent::Level::kInfo:
      return "info";
    case LogEvent::Level::kWarning:
      return "warning";
    case LogEvent::Level::kError:
      return "error";
  }
  return "error";
}

void AddFields(const std::vector<LogField>& fields, Json* line) {
  for (const LogField& field : fields) {
    std::visit([&](const auto& value) { (*line)[field.name] = value; }, field.value);
  }
}

std::string ToJson(const LogEvent& event, absl::Time now, const std::string& program) {
  State& state = TheState();
  Json line = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
               {"level", LevelWord(event.level)},
               {"program", program},
               {"event", event.what}};
  {
    MutexLock lock(&state.mu);
    AddFields(state.context, &line);
  }
  AddFields(event.fields, &line);
  return line.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

void InitLogging(absl::string_view program, LogFormat format) {
  auto logger = std::make_shared<spdlog::logger>(
      std::string(program), std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern(format == LogFormat::kJson ? "%v" : "%Y-%m-%d %H:%M:%S.%e %^%L%$ %n] %v");
  spdlog::set_default_logger(std::move(logger));
  TheState().format = format;
}

void SetLogLevel(LogEvent::Level level) { spdlog::set_level(LevelOf(level)); }

void SetLogVerbosity(int verbose) {
  SetLogLevel(verbose >= 1 ? LogEvent::Level::kDebug : LogEvent::Level::kInfo);
}

void SetLogContext(std::vector<LogField> context) {
  State& state = TheState();
  MutexLock lock(&state.mu);
  state.context = std::move(context);
}

void Log(const LogEvent& event) {
  spdlog::logger* const logger = spdlog::default_logger_raw();
  const spdlog::level::level_enum level = LevelOf(event.level);
  if (!logger->should_log(level)) return;
  logger->log(level, TheState().format == LogFormat::kJson
                         ? ToJson(event, absl::Now(), logger->name())
                         : ToText(event));
}

void FlushLog() { spdlog::shutdown(); }

}  // namespace weft
