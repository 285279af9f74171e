// What training and evaluation report for a bucket: PBG's Stats (a count and named averages).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "services/common/types.h"

namespace weft {

struct Stats {
  int64_t count = 0;
  std::map<std::string, double> metrics;  // averages over `count`

  std::optional<double> Find(const std::string& metric) const;
};

// Averages of Stats, weighted by their counts. Metrics that only some of them have are averaged
// over those.
class StatsAverage {
 public:
  void Add(const Stats& stats);
  Stats Average() const;

 private:
  struct Sum {
    double weighted = 0;
    int64_t count = 0;
  };
  int64_t count_ = 0;
  std::map<std::string, Sum> sums_;
};

struct BucketStats {
  Bucket bucket;
  int64_t trained_edges = 0;
  int64_t held_out_edges = 0;
  double train_seconds = 0;  // compute alone
  Stats train;               // loss, reg, violators_lhs, violators_rhs
  std::optional<Stats> eval_before;
  std::optional<Stats> eval_after;
};

}  // namespace weft
