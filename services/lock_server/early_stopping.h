// Early stopping: the run ends when the held-out edges have not got better for `patience` epochs.
//
// The value of an epoch is the mean over its buckets, weighted by held-out edges, of what
// evaluation gave *before* each bucket was trained: it judges the version with which the epoch
// began. Without held-out edges the training loss is taken. Pure functions on a plain state; the
// state is durable.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "services/common/run_config.h"
#include "services/common/run_stats.h"

namespace weft {

struct EarlyStoppingState {
  // The epoch under way.
  int64_t epoch_first_version = 0;  // the version that it began with
  double weighted_sum = 0;          // of the metric
  int64_t weight = 0;
  // Finished epochs.
  std::optional<double> best_value;
  int64_t best_version = 0;
  int best_epoch = 0;  // epochs that were finished when that version was made
  int epochs_since_best = 0;

  bool operator==(const EarlyStoppingState&) const = default;
};

using EarlyStoppingOptions = std::optional<RunConfig::EarlyStopping>;

// Adds the buckets of a pass. Without early stopping nothing is added.
void AddPass(const EarlyStoppingOptions& options, absl::Span<const BucketStats> buckets,
             EarlyStoppingState* state);

// Judges epoch `epoch` (counted from 0), which has ended; the next one begins with `version`.
void EndEpoch(const EarlyStoppingOptions& options, int epoch, int64_t version,
              EarlyStoppingState* state);

// A patience of 0 is one of 1: an epoch without improvement stops the run.
bool ShouldStop(const EarlyStoppingOptions& options, const EarlyStoppingState& state);

}  // namespace weft
