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
