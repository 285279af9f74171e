// A small data set on disk, and a trainer that counts instead of training: it adds 1 to a
// partition's sums for every bucket that uses the partition on a side, and 1 to every shared sum
// for every bucket. So a table tells how often it was trained, to the bucket.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/run_config.h"
#include "services/trainer/local/local_run.h"
#include "tests/testing/temp_dir.h"

namespace weft::testing {

struct LocalDataOptions {
  int num_partitions = 1;                  // of entity type "user"
  bool with_items = false;                 // an unpartitioned type "item" on the right-hand side
  int64_t entities = 5;                    // of each partition
  int64_t edges = 12;                      // of each bucket
  std::vector<Bucket> empty_buckets = {};  // without a file
  std::vector<std::string> edge_paths = {"train"};
};

// Writes entity counts and edges below `folder`, and gives a configuration for them: two epochs,
// checkpoint_path FOLDER/model, seed 1, nothing held out.
RunConfig MakeLocalData(const std::string& folder, const LocalDataOptions& options);

// One trainer, without threads, over the clients of a run.
class CountingTrainer {
 public:
  explicit CountingTrainer(LocalRun* run, const LocalDataOptions& data);

  // Trains until the run is done, or `grants` grants are released.
  absl::Status Train(int grants = INT32_MAX);

  // Called before each step, with its name; for crashes.
  std::function<void(const std::string& step)> on_step;

  std::vector<double> losses;  // to report, by epoch; none: 0.5
  std::vector<Grant> grants;   // that were released
  SharedState& live() { return live_; }

 private:
  absl::Status TrainGrant(const Grant& grant);
  void Step(const std::string& step) {
    if (on_step) on_step(step);
  }

  LocalRun* const run_;
  const LocalDataOptions data_;
  SharedState live_;
  bool joined_ = false;
  uint64_t number_ = 0;
  std::map<PartitionKey, std::pair<Token, EmbeddingPartition>> cache_;
};

// What a committed version holds: by file, how often it was trained (the sum of its first row; all
// rows are equal, or -1).
struct VersionCounts {
  std::map<std::string, double> tables;  // "user_0"
  double parameters = 0;
};
absl::StatusOr<VersionCounts> ReadCounts(const RunConfig& config, int64_t version);

// How often partition `p` of "user" is used by the buckets of one pass.
double UsesInPass(const LocalDataOptions& data, int p);

}  // namespace weft::testing
