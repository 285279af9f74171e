#include "services/lock_server/early_stopping.h"

#include <algorithm>
#include <cmath>

namespace weft {

void AddPass(const EarlyStoppingOptions& options, absl::Span<const BucketStats> buckets,
             EarlyStoppingState* state) {
  if (!options.has_value()) return;
  const bool held_out =
      std::ranges::any_of(buckets, [](const BucketStats& b) { return b.eval_before.has_value(); });
  const char* metric = options->metric == EarlyStoppingMetric::kMrr ? "mrr" : "loss";
  for (const BucketStats& bucket : buckets) {
    if (held_out && !bucket.eval_before.has_value()) continue;
    const Stats& stats = held_out ? *bucket.eval_before : bucket.train;
    const auto value = stats.metrics.find(metric);
    if (value == stats.metrics.end() || !std::isfinite(value->second)) continue;
    state->weighted_sum += value->second * static_cast<double>(stats.count);
    state->weight += stats.count;
  }
}

void EndEpoch(const EarlyStoppingOptions& options, int epoch, int64_t version,
              EarlyStoppingState* state) {
  if (options.has_value() && state->weight > 0) {
    const double value = state->weighted_sum / static_cast<double>(state->weight);
    const bool better = !state->best_value.has_value() ||
                        (options->metric == EarlyStoppingMetric::kMrr ? value > *state->best_value
                                                                      : value < *state->best_value);
    if (better) {
      state->best_value = value;
      state->best_version = state->epoch_first_version;
      state->best_epoch = epoch;
      state->epochs_since_best = 0;
    } else {
      ++state->epochs_since_best;
    }
  }
  state->weighted_sum = 0;
  state->weight = 0;
  state->epoch_first_version = version;
}

bool ShouldStop(const EarlyStoppingOptions& options, const EarlyStoppingState& state) {
  return options.has_value() && state.epochs_since_best >= std::max(1, options->patience);
}

}  // namespace weft
