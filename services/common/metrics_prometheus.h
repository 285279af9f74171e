// The metrics of a process in Prometheus' text format.
#pragma once

#include <string>

#include "services/common/metrics.h"

namespace weft {

// Asks all sources. Thread-safety: any thread, but not a source's.
std::string PrometheusText(MetricsRegistry* registry);

}  // namespace weft
