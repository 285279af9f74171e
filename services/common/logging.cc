#include "services/common/logging.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string>

namespace weft {

void InitLogging(std::string_view program, int verbose) {
  auto logger = std::make_shared<spdlog::logger>(
      std::string(program), std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%L%$ %n] %v");
  spdlog::set_default_logger(std::move(logger));
  SetLogVerbosity(verbose);
}

void SetLogVerbosity(int verbose) {
  spdlog::set_level(verbose >= 1 ? spdlog::level::debug : spdlog::level::info);
}

}  // namespace weft
