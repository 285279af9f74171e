#include "services/trainer/bucket_trainer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/random.h"
#include "services/common/status_macros.h"
#include "services/trainer/negative_sampler.h"

namespace weft {
namespace {

// No pass has this number: evaluation draws the same negatives in every pass, and never those of
// training.
constexpr int64_t kEvaluationPass = -1;
// How many batches one more thread waits for where rows have their initial values.
constexpr int64_t kRampBatches = 8;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

absl::Status AtBatch(const absl::Status& status, Bucket bucket, int64_t batch) {
  return Annotate(status,
                  absl::StrCat("bucket (", bucket.lhs, ", ", bucket.rhs, "), batch ", batch));
}

}  // namespace

BucketTrainer::BucketTrainer(Options options, HogwildPool* pool)
    : options_(std::move(options)), pool_(pool) {}

BucketTrainer::~BucketTrainer() = default;

absl::StatusOr<std::unique_ptr<BucketTrainer>> BucketTrainer::Create(
    const BatchStepFactory& factory, Options options, ParameterSet* parameters, HogwildPool* pool) {
  std::unique_ptr<BucketTrainer> trainer(new BucketTrainer(std::move(options), pool));
  const Options& o = trainer->options_;
  trainer->workers_.resize(static_cast<size_t>(pool->num_workers()));
  // Made where they are used: memory lies near the worker, and thread-local settings are its own.
  WEFT_RETURN_IF_ERROR(pool->RunOnEachWorker([&](int worker, int64_t) -> absl::Status {
    const int batch_size =
        std::max(o.train_spec.batch_size, o.evaluates ? o.eval_spec.batch_size : 1);
    auto made = std::make_unique<Worker>(batch_size);
    WEFT_ASSIGN_OR_RETURN(made->train_step, factory.Make(o.train_spec, parameters));
    if (o.evaluates) {
      WEFT_ASSIGN_OR_RETURN(made->eval_step, factory.Make(o.eval_spec, parameters));
    }
    trainer->workers_[worker] = std::move(made);
    return absl::OkStatus();
  }));
  return trainer;
}

const BatchTables& BucketTrainer::Prepare(const ModelSpec& spec, int64_t pass, const Target& target,
                                          const Batcher& batcher, int64_t batch, Worker* worker) {
  batcher.Gather(batch, &worker->columns);
  const RelationTypeId relation = batcher.relation(batch);
  const BatchTables& tables = (*target.tables)[relation];
  SampleNegatives(spec, relation, worker->columns.batch().size(), tables.lhs.count,
                  tables.rhs.count, {options_.seed, pass, target.bucket, batch},
                  &worker->negatives);
  return tables;
}

absl::Status BucketTrainer::TrainBatch(const Target& target, const Batcher& batcher, int64_t batch,
                                       Worker* worker) {
  if (options_.before_batch) WEFT_RETURN_IF_ERROR(options_.before_batch());
  const BatchTables& tables =
      Prepare(options_.train_spec, target.pass, target, batcher, batch, worker);
  absl::StatusOr<BatchStats> stats =
      worker->train_step->Train(worker->columns.batch(), worker->negatives, tables);
  if (!stats.ok()) return AtBatch(stats.status(), target.bucket, batch);
  worker->sums.Add(*stats);
  worker->edges_done.store(worker->sums.count, std::memory_order_relaxed);
  worker->loss_done.store(worker->sums.loss, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status BucketTrainer::EvaluateBatch(const Target& target, const Batcher& batcher,
                                          int64_t batch, Worker* worker) {
  const BatchTables& tables =
      Prepare(options_.eval_spec, kEvaluationPass, target, batcher, batch, worker);
  absl::StatusOr<BatchStats> stats =
      worker->eval_step->Score(worker->columns.batch(), worker->negatives, tables, &worker->scores);
  if (!stats.ok()) return AtBatch(stats.status(), target.bucket, batch);
  const uint64_t where = (static_cast<uint64_t>(static_cast<uint32_t>(target.bucket.lhs)) << 32) |
                         static_cast<uint32_t>(target.bucket.rhs);
  worker->metrics.AddBatch(
      *stats, worker->scores,
      RandomStream(options_.seed, RandomUse::kEvalCandidates, where, static_cast<uint64_t>(batch)));
  return absl::OkStatus();
}

absl::StatusOr<BucketTrainer::TrainResult> BucketTrainer::Train(
    const Target& target, const GroupedEdges& edges, const HogwildPool::RunOptions& options) {
  for (const auto& worker : workers_) {
    worker->sums = {};
    worker->edges_done = 0;
    worker->loss_done = 0;
  }
  const auto start = std::chrono::steady_clock::now();
  const Batcher batcher = Batcher::Shuffled(
      edges, {options_.train_spec.batch_size, options_.seed, target.pass, target.bucket});
  HogwildPool::RunOptions run = options;
  run.ramp_tasks = target.fresh ? kRampBatches : 0;
  WEFT_RETURN_IF_ERROR(pool_->Run(
      batcher.num_batches(),
      [&](int worker, int64_t batch) {
        return TrainBatch(target, batcher, batch, workers_[worker].get());
      },
      run));
  TrainResult result;
  result.seconds = SecondsSince(start);
  BatchStats total;
  for (const auto& worker : workers_) total.Add(worker->sums);
  result.stats.count = total.count;
  if (total.count > 0) {
    const auto n = static_cast<double>(total.count);
    result.stats.metrics = {{"loss", total.loss / n},
                            {"reg", total.reg / n},
                            {"violators_lhs", static_cast<double>(total.violators_lhs) / n},
                            {"violators_rhs", static_cast<double>(total.violators_rhs) / n}};
  }
  return result;
}

absl::StatusOr<Stats> BucketTrainer::Evaluate(const Target& target, const GroupedEdges& edges,
                                              const HogwildPool::RunOptions& options) {
  for (const auto& worker : workers_) worker->metrics = {};
  const Batcher batcher = Batcher::InOrder(edges, options_.eval_spec.batch_size);
  WEFT_RETURN_IF_ERROR(pool_->Run(
      batcher.num_batches(),
      [&](int worker, int64_t batch) {
        return EvaluateBatch(target, batcher, batch, workers_[worker].get());
      },
      options));
  HeldOutMetrics total;
  for (const auto& worker : workers_) total.Add(worker->metrics);
  return total.Average();
}

BucketTrainer::Progress BucketTrainer::progress() const {
  Progress progress;
  for (const auto& worker : workers_) {
    progress.edges += worker->edges_done.load(std::memory_order_relaxed);
    progress.loss += worker->loss_done.load(std::memory_order_relaxed);
  }
  return progress;
}

}  // namespace weft
