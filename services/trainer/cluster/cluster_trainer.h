// ClusterTrainer is a trainer of a cluster, from its registration to its end. Everything about the
// run comes from the lock server; what is of this machine (where the edges lie, how many threads)
// may be given.
//
// Stopping: what is finished is stored and released, the bucket in training is given back at a
// batch boundary, the session ends. What of that takes longer than `grace` is left: others get the
// buckets when the lease is over.
//
// Thread-safety: Stop and WriteMetrics from any thread, the rest from one.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/metrics.h"
#include "services/common/retry.h"
#include "services/trainer/cluster/cluster_clients.h"
#include "services/trainer/training_loop.h"

namespace weft {

class ClusterTrainer {
 public:
  struct Options {
    ClusterClients::Options clients;
    // Instead of the run's, on this machine. Empty: the run's.
    std::string entity_path;
    std::vector<std::string> edge_paths;
    int threads = 0;  // 0: as the run says
  };

  // Registers, takes the run's configuration, and compares the data here with the run's.
  // Errors: InvalidArgument (a configuration of another version), FailedPrecondition (other data,
  // other versions of the programs), NotFound, DataLoss (data here); Unavailable after the
  // patience.
  static absl::StatusOr<std::unique_ptr<ClusterTrainer>> Begin(const Options& options);
  virtual ~ClusterTrainer() = default;

  virtual const RunConfig& config() const = 0;
  virtual const std::string& name() const = 0;
  // Trains until the run is done, or Stop. Errors: as TrainingLoop::Run.
  virtual absl::StatusOr<TrainingSummary> Run() = 0;
  // Thread-safety: any thread.
  virtual void WriteMetrics(MetricsPage* page) const = 0;
  virtual void Stop() = 0;
  // Ends all calls: Run returns soon, whatever is left undone.
  virtual void Cancel() = 0;
};

}  // namespace weft
