// TrainingLoop is the one loop that trains: it takes grants from the lock server, trains their
// buckets, hands them back, until the run is done. On one machine and in a cluster alike; what
// differs is behind the clients.
//
// Thread-safety: not thread-safe; one Run a loop. Threads: HOGWILD workers, one for storing and two
// for reading ahead.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/common/float_block.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/lock_server/lock_client.h"
#include "services/param_server/param_client.h"
#include "services/partition_server/partition_client.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/bucket_pipeline.h"
#include "services/trainer/bucket_trainer.h"
#include "services/trainer/edge_cache.h"
#include "services/trainer/edge_reader.h"
#include "services/trainer/hogwild_pool.h"
#include "services/trainer/phase_clock.h"
#include "services/trainer/training_stats.h"
#include "services/trainer/training_task.h"

namespace weft {

// Where training stands; for progress displays.
struct TrainingProgress {
  enum class Phase { kEvaluatingBefore, kTraining, kEvaluatingAfter };
  PassPosition position;
  Bucket bucket;
  Phase phase = Phase::kTraining;
  int64_t bucket_edges = 0;  // to be trained
  int64_t done_edges = 0;    // of these
  double loss = 0;           // an edge, averaged over done_edges
};

// Called on the thread of TrainingLoop::Run.
class TrainingObserver {
 public:
  virtual ~TrainingObserver() = default;
  // About five times a second while the workers work.
  virtual void OnProgress(const TrainingProgress& progress) {}
  // A bucket of the grant is trained (it is stored and released later).
  virtual void OnBucketTrained(const Grant& grant, const BucketStats& stats) {}
};

// Where the time of the loop's thread went.
struct PhaseSeconds {
  double waiting = 0;     // for a grant
  double loading = 0;     // partitions and edges that were not there yet
  double training = 0;    // the workers work
  double evaluating = 0;  // on held-out edges
  double finishing = 0;   // checks, and handing a grant over to be stored
};

struct TrainingSummary {
  bool stopped = false;  // by request, before the run was done
  std::vector<EpochSummary> epochs;
  int64_t trained_edges = 0;
  double train_seconds = 0;
  double edges_per_second = 0;  // over training time, without evaluation and I/O
  PhaseSeconds phases;
};

class TrainingLoop {
 public:
  struct Options {
    int num_threads = 1;
    BucketPipeline::Options pipeline;
    absl::Duration acquire_wait = absl::Seconds(10);  // how long one request for a grant may wait
  };

  // What the loop works with. All must outlive it.
  struct Services {
    LockClient* lock = nullptr;
    ParamClient* params = nullptr;
    PartitionClient* partitions = nullptr;
    const BatchStepFactory* steps = nullptr;
    TrainingObserver* observer = nullptr;  // may be null
    EdgeSource* edges = nullptr;           // null: the folders of the task's edge paths
    PhaseClock* phases = nullptr;          // for those who watch; null: the loop's own
  };

  // `live` is the shared state that workers read and write, of the right names and shapes
  // (MakeSharedState). `task` and `live` must outlive the loop.
  TrainingLoop(const TrainingTask& task, const Options& options, const Services& services,
               SharedState* live);
  ~TrainingLoop();

  // Trains until the run is done or `stop` becomes true: then the grant in training is abandoned
  // at a batch boundary, what is finished is stored and released, and the session ends.
  // Errors:
  //   OutOfRange: something was not finite (names bucket, batch and relation, or bucket and row);
  //     the run has failed.
  //   InvalidArgument, DataLoss: edges that do not fit the run; the run has failed.
  //   others: of the clients. The committed versions stay as they are in any case.
  absl::StatusOr<TrainingSummary> Run(const std::atomic<bool>& stop);

 private:
  absl::Status TrainUntilDone(const std::atomic<bool>& stop);
  absl::StatusOr<AcquireResult> Acquire(absl::Duration wait);
  absl::Status Load(const Grant& grant);
  // Errors: DataLoss when they are not as many as the run expects.
  absl::StatusOr<const BucketEdges*> GetEdges(const PassPosition& position,
                                              const GrantedBucket& granted);
  absl::Status TrainGrant(const Grant& grant, const std::atomic<bool>& stop);
  absl::StatusOr<BucketStats> TrainBucket(const Grant& grant, size_t index,
                                          const std::atomic<bool>& stop);
  absl::StatusOr<Stats> Evaluate(const BucketTrainer::Target& target, const GroupedEdges& edges,
                                 TrainingProgress* progress, const std::atomic<bool>& stop);
  // What the grant trained is finite. The last batch's update has been in no score yet, and other
  // rows may not be for long.
  absl::Status CheckFinite(const Grant& grant);
  absl::Status CheckFinite(absl::string_view name, const FloatBlock& values);
  PhaseSeconds Phases() const;
  std::vector<BatchTables> TablesOf(Bucket bucket);
  // Whether some of what the grant trains still has its initial values.
  bool IsFresh(const Grant& grant) const;
  void PrefetchEdges(const Grant& grant, size_t next_bucket);
  // The pass after `position`; none after the last.
  std::optional<PassPosition> NextPass(PassPosition position) const;

  const TrainingTask& task_;
  const Options options_;
  const Services services_;
  SharedState* const live_;
  PhaseClock own_phases_;
  PhaseClock* const phases_;

  HogwildPool pool_;
  EdgeReader edge_reader_;
  EdgeCache edges_;
  BucketPipeline pipeline_;
  std::unique_ptr<BucketTrainer> trainer_;
  TrainingStats stats_;
  uint64_t acquire_number_ = 1;
};

// Shared state of the task's names and shapes: the model's parameters and the tables of entity
// types with one partition. Values are ParamClient::Join's.
absl::StatusOr<SharedState> MakeSharedState(const TrainingTask& task,
                                            const BatchStepFactory& factory);

}  // namespace weft
