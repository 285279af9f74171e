// BucketTrainer trains the edges of one bucket with HOGWILD workers, and evaluates its held-out
// ones. Each worker owns a BatchStep and the memory of its batch; batches are claimed from a shared
// cursor, and nothing is allocated once every worker has seen its largest batch.
//
// What a batch contains does not depend on the workers: with one worker, results are bit-equal from
// run to run.
//
// Thread-safety: one caller at a time, but for progress().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/parameter_set.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/trainer/batch_step.h"
#include "services/trainer/batcher.h"
#include "services/trainer/bucket_edges.h"
#include "services/trainer/held_out_metrics.h"
#include "services/trainer/hogwild_pool.h"
#include "services/trainer/model/model_spec.h"

namespace weft {

class BucketTrainer {
 public:
  struct Options {
    ModelSpec train_spec;
    ModelSpec eval_spec;    // EvaluationSpec of the former
    bool evaluates = true;  // false: Evaluate is never called, its workspaces are not made
    uint64_t seed = 0;
    // Called by a worker before each batch it trains; an error ends Train with it. May be empty.
    std::function<absl::Status()> before_batch = nullptr;
  };

  // `pool` and `parameters` must outlive this object.
  // Errors: those of the factory.
  static absl::StatusOr<std::unique_ptr<BucketTrainer>> Create(const BatchStepFactory& factory,
                                                               Options options,
                                                               ParameterSet* parameters,
                                                               HogwildPool* pool);
  ~BucketTrainer();

  // What is trained: a bucket in a pass, with the tables that each relation touches (one entry for
  // dynamic relations). Borrowed.
  struct Target {
    int64_t pass = 0;
    Bucket bucket;
    const std::vector<BatchTables>* tables = nullptr;
    // Whether some of the rows still have their initial values: training then begins on one thread
    // and the others join one after the other. Side by side, the first batches would all step from
    // the initial values, and such steps are large: the loss of an epoch then ends several percent
    // higher (cos, whose first gradients are the largest).
    bool fresh = false;
  };

  struct TrainResult {
    Stats stats;         // loss, reg, violators_lhs, violators_rhs
    double seconds = 0;  // from the first batch to the last
  };

  // Trains every edge once, in random order.
  // Errors:
  //   OutOfRange: something was not finite; names bucket, batch and relation.
  //   Cancelled: `options.stop` became true before the last batch.
  //   others: of before_batch.
  absl::StatusOr<TrainResult> Train(const Target& target, const GroupedEdges& edges,
                                    const HogwildPool::RunOptions& options);

  // Ranks each edge against sampled negatives, the same ones in every pass. Errors as Train.
  absl::StatusOr<Stats> Evaluate(const Target& target, const GroupedEdges& edges,
                                 const HogwildPool::RunOptions& options);

  // Edges trained and their summed loss since the last call of Train began.
  struct Progress {
    int64_t edges = 0;
    double loss = 0;
  };
  Progress progress() const;

 private:
  // Aligned, so that workers do not share cache lines.
  struct alignas(64) Worker {
    explicit Worker(int64_t batch_size) : columns(batch_size) {}

    std::unique_ptr<BatchStep> train_step;
    std::unique_ptr<BatchStep> eval_step;
    BatchColumns columns;
    SampledNegatives negatives;
    BatchScores scores;
    BatchStats sums;
    HeldOutMetrics metrics;
    // Copies of `sums` that others may read meanwhile.
    std::atomic<int64_t> edges_done{0};
    std::atomic<double> loss_done{0};
  };

  BucketTrainer(Options options, HogwildPool* pool);

  absl::Status TrainBatch(const Target& target, const Batcher& batcher, int64_t batch,
                          Worker* worker);
  absl::Status EvaluateBatch(const Target& target, const Batcher& batcher, int64_t batch,
                             Worker* worker);
  // Gathers the batch and draws its negatives; returns the tables it touches.
  const BatchTables& Prepare(const ModelSpec& spec, int64_t pass, const Target& target,
                             const Batcher& batcher, int64_t batch, Worker* worker);

  const Options options_;
  HogwildPool* const pool_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace weft
