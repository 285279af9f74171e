#include "services/trainer/training_stats.h"

namespace weft {

void TrainingStats::Add(const PassPosition& position, const BucketStats& bucket) {
  Epoch& epoch = epochs_[position.epoch];
  epoch.totals.epoch = position.epoch;
  ++epoch.totals.buckets;
  epoch.totals.trained_edges += bucket.trained_edges;
  epoch.totals.held_out_edges += bucket.held_out_edges;
  epoch.totals.train_seconds += bucket.train_seconds;
  epoch.train.Add(bucket.train);
  if (bucket.eval_before) epoch.eval_before.Add(*bucket.eval_before);
  if (bucket.eval_after) epoch.eval_after.Add(*bucket.eval_after);
  trained_edges_ += bucket.trained_edges;
  train_seconds_ += bucket.train_seconds;
}

std::vector<EpochSummary> TrainingStats::Epochs() const {
  std::vector<EpochSummary> epochs;
  for (const auto& [number, epoch] : epochs_) {
    EpochSummary& summary = epochs.emplace_back(epoch.totals);
    summary.train = epoch.train.Average();
    if (Stats s = epoch.eval_before.Average(); s.count > 0) summary.eval_before = s;
    if (Stats s = epoch.eval_after.Average(); s.count > 0) summary.eval_after = s;
  }
  return epochs;
}

}  // namespace weft
