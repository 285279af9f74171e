// What `weft train` says of a run: a line an epoch, a last line, and the report for machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/common/run_config.h"
#include "services/lock_server/run_coordinator.h"
#include "services/trainer/training_loop.h"
#include "services/trainer/training_stats.h"

namespace weft::cli {

struct TrainReport {
  const RunConfig* config = nullptr;
  int threads = 0;
  // Of the whole run, when this process ends.
  RunProgress progress;
  int64_t checkpoint_version = 0;
  // The epochs of which this process has committed passes, with all buckets of those passes.
  std::vector<EpochSummary> epochs;
  // What this process has trained itself.
  TrainingSummary summary;
  double seconds = 0;  // from the start of the command
  int64_t peak_memory_bytes = 0;
};

// "epoch 3/30: loss 0.211, 830 k edges/s; held-out mrr 0.311 -> 0.325"
std::string EpochLine(const EpochSummary& epoch, int num_epochs);

// "bucket (0, 1): 200,000 edges, loss 0.211, 830 k edges/s; ..."; for verbose runs.
std::string BucketLine(const BucketStats& stats);

// What was done, where it is, and how to go on when it was stopped. Ends with a new line.
std::string LastLines(const TrainReport& report, const std::string& config_path);

std::string ReportToJson(const TrainReport& report);

}  // namespace weft::cli
