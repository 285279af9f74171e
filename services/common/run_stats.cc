#include "services/common/run_stats.h"

namespace weft {

std::optional<double> Stats::Find(const std::string& metric) const {
  const auto found = metrics.find(metric);
  if (found == metrics.end()) return std::nullopt;
  return found->second;
}

void StatsAverage::Add(const Stats& stats) {
  count_ += stats.count;
  for (const auto& [name, value] : stats.metrics) {
    Sum& sum = sums_[name];
    sum.weighted += value * static_cast<double>(stats.count);
    sum.count += stats.count;
  }
}

Stats StatsAverage::Average() const {
  Stats average;
  average.count = count_;
  for (const auto& [name, sum] : sums_) {
    if (sum.count > 0) average.metrics[name] = sum.weighted / static_cast<double>(sum.count);
  }
  return average;
}

}  // namespace weft
