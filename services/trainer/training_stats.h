// TrainingStats adds up what buckets report: per epoch, for summaries and reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/common/run_stats.h"
#include "services/lock_server/lock_client.h"

namespace weft {

struct EpochSummary {
  int epoch = 0;
  int64_t buckets = 0;
  int64_t trained_edges = 0;
  int64_t held_out_edges = 0;
  double train_seconds = 0;  // compute alone: without evaluation and I/O
  Stats train;
  std::optional<Stats> eval_before;  // of the held-out edges, if there are any
  std::optional<Stats> eval_after;

  double EdgesPerSecond() const {
    return train_seconds > 0 ? static_cast<double>(trained_edges) / train_seconds : 0;
  }
};

class TrainingStats {
 public:
  void Add(const PassPosition& position, const BucketStats& bucket);

  // The epochs that this process has trained buckets of, ascending.
  std::vector<EpochSummary> Epochs() const;
  int64_t trained_edges() const { return trained_edges_; }
  double train_seconds() const { return train_seconds_; }
  double EdgesPerSecond() const {
    return train_seconds_ > 0 ? static_cast<double>(trained_edges_) / train_seconds_ : 0;
  }

 private:
  struct Epoch {
    EpochSummary totals;
    StatsAverage train;
    StatsAverage eval_before;
    StatsAverage eval_after;
  };
  std::map<int, Epoch> epochs_;
  int64_t trained_edges_ = 0;
  double train_seconds_ = 0;
};

}  // namespace weft
