#include "services/trainer/training_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/finite.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// A session that ends again and again without a finished grant between is not mended by trying.
constexpr int kMaxSessionsWithoutProgress = 5;
// How soon the error of a store in the background is noticed while there is nothing else to do.
constexpr absl::Duration kStoreErrorWait = absl::Seconds(1);

absl::Status CheckExpectedEdges(const GrantedBucket& granted, const BucketEdges& edges) {
  if (edges.size() == granted.expected_edges) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("bucket (", granted.bucket.lhs, ", ", granted.bucket.rhs, ") has ", edges.size(),
                   " edges in this pass, but had ", granted.expected_edges,
                   " when the run began: its edges have changed; import again or start a new run"));
}

BucketPipeline::Options WithPhases(BucketPipeline::Options options, PhaseClock* phases) {
  options.phases = phases;
  return options;
}

bool FailsTheRun(const absl::Status& status) {
  return absl::IsOutOfRange(status) || absl::IsInvalidArgument(status) || absl::IsDataLoss(status);
}

}  // namespace

absl::StatusOr<SharedState> MakeSharedState(const TrainingTask& task,
                                            const BatchStepFactory& factory) {
  SharedState state;
  WEFT_ASSIGN_OR_RETURN(state.parameters, factory.MakeParameters(task.spec));
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    EmbeddingPartition& table = state.unpartitioned.emplace_back();
    if (task.IsShared(type)) {
      table = EmbeddingPartition(task.count({type, 0}), task.config.EntityDimension(type));
    }
  }
  return state;
}

TrainingLoop::TrainingLoop(const TrainingTask& task, const Options& options,
                           const Services& services, SharedState* live)
    : task_(task),
      options_(options),
      services_(services),
      live_(live),
      phases_(services.phases != nullptr ? services.phases : &own_phases_),
      pool_(options.num_threads),
      edge_reader_(task, services.edges),
      edges_(edge_reader_, options.pipeline.prefetch),
      pipeline_(task, WithPhases(options.pipeline, phases_), services.lock, services.params,
                services.partitions, &pool_) {}

TrainingLoop::~TrainingLoop() = default;

PhaseSeconds TrainingLoop::Phases() const {
  return {phases_->Seconds(TrainingPhase::kWait), phases_->Seconds(TrainingPhase::kLoad),
          phases_->Seconds(TrainingPhase::kTrain), phases_->Seconds(TrainingPhase::kEvaluate),
          phases_->Seconds(TrainingPhase::kFinish)};
}

absl::StatusOr<TrainingSummary> TrainingLoop::Run(const std::atomic<bool>& stop) {
  BucketTrainer::Options options{task_.spec, EvaluationSpec(task_.spec, task_.config),
                                 task_.config.eval_fraction > 0, task_.seed,
                                 [this, &stop] { return services_.params->WaitUntilFresh(stop); }};
  WEFT_ASSIGN_OR_RETURN(trainer_, BucketTrainer::Create(*services_.steps, std::move(options),
                                                        &live_->parameters, &pool_));

  int fruitless_sessions = 0;
  absl::Status status;
  while (true) {
    const double before = stats_.train_seconds();
    status = services_.params->Join(live_);
    if (status.ok()) status = TrainUntilDone(stop);
    if (!absl::IsAborted(status)) break;
    // The grants and the names of the copies are worth nothing. It need not be the lock server that
    // said so, and only it can give the buckets to others: the session ends, if it has not yet.
    pipeline_.Forget();
    services_.lock->Leave().IgnoreError();
    fruitless_sessions = stats_.train_seconds() > before ? 0 : fruitless_sessions + 1;
    if (fruitless_sessions > kMaxSessionsWithoutProgress) break;
  }
  const bool stopped = stop && absl::IsCancelled(status);
  if (!status.ok() && !stopped) {
    // What is finished is kept, and nobody waits for its grants.
    pipeline_.Drain().IgnoreError();
    services_.lock->Leave().IgnoreError();
    return status;
  }
  WEFT_RETURN_IF_ERROR(pipeline_.Drain());
  WEFT_RETURN_IF_ERROR(services_.lock->Leave());
  return TrainingSummary{stopped,
                         stats_.Epochs(),
                         stats_.trained_edges(),
                         stats_.train_seconds(),
                         stats_.EdgesPerSecond(),
                         Phases()};
}

absl::Status TrainingLoop::TrainUntilDone(const std::atomic<bool>& stop) {
  while (true) {
    if (stop) return absl::CancelledError("stopped");
    WEFT_ASSIGN_OR_RETURN(const bool storing, pipeline_.IsStoring());
    const absl::Duration wait =
        storing ? std::min(options_.acquire_wait, kStoreErrorWait) : options_.acquire_wait;
    WEFT_ASSIGN_OR_RETURN(const AcquireResult acquired, Acquire(wait));
    if (acquired.grant) {
      ++acquire_number_;
      WEFT_RETURN_IF_ERROR(TrainGrant(*acquired.grant, stop));
    } else if (acquired.run_done) {
      return pipeline_.Drain();
    }
    // Otherwise others train what is left, or an earlier grant of ours is still being stored.
  }
}

absl::StatusOr<AcquireResult> TrainingLoop::Acquire(absl::Duration wait) {
  const PhaseClock::Span span(phases_, TrainingPhase::kWait);
  return services_.lock->AcquireBucket({acquire_number_, pipeline_.Resident(), wait});
}

absl::Status TrainingLoop::Load(const Grant& grant) {
  const PhaseClock::Span span(phases_, TrainingPhase::kLoad);
  return pipeline_.Load(grant);
}

absl::StatusOr<const BucketEdges*> TrainingLoop::GetEdges(const PassPosition& position,
                                                          const GrantedBucket& granted) {
  const PhaseClock::Span span(phases_, TrainingPhase::kLoad);
  WEFT_ASSIGN_OR_RETURN(const BucketEdges* edges, edges_.Get(position, granted.bucket));
  WEFT_RETURN_IF_ERROR(CheckExpectedEdges(granted, *edges));
  return edges;
}

absl::Status TrainingLoop::TrainGrant(const Grant& grant, const std::atomic<bool>& stop) {
  std::vector<BucketStats> trained;
  services_.params->BeginPass(grant.position.pass);
  edges_.Prefetch(grant.position, grant.buckets.front().bucket);  // while partitions are loaded
  absl::Status status = Load(grant);
  if (status.ok()) pipeline_.Prefetch(grant.hint);
  bool failed = false;
  for (size_t i = 0; status.ok() && i < grant.buckets.size(); ++i) {
    absl::StatusOr<BucketStats> bucket = TrainBucket(grant, i, stop);
    if (!bucket.ok()) {
      status = bucket.status();
      failed = FailsTheRun(status);
      if (!failed) break;
      // What was finished before this grant is kept.
      WEFT_RETURN_IF_ERROR(pipeline_.Drain());
      WEFT_RETURN_IF_ERROR(services_.lock->ReportFailure(
          grant.token, {grant.buckets[i].bucket, std::string(status.message())}));
      break;
    }
    if (services_.observer != nullptr) {
      services_.observer->OnBucketTrained(grant, *bucket);
    }
    trained.push_back(*std::move(bucket));
  }
  if (!status.ok()) {
    pipeline_.Discard();
    // Given back at once, so that others need not wait for the session's end.
    if (!failed) services_.lock->AbandonBucket(grant.token).IgnoreError();
    return status;
  }
  for (const BucketStats& bucket : trained) stats_.Add(grant.position, bucket);
  const PhaseClock::Span span(phases_, TrainingPhase::kFinish);
  return pipeline_.Finish(grant, std::move(trained));
}

absl::StatusOr<BucketStats> TrainingLoop::TrainBucket(const Grant& grant, size_t index,
                                                      const std::atomic<bool>& stop) {
  const GrantedBucket& granted = grant.buckets[index];
  WEFT_ASSIGN_OR_RETURN(const BucketEdges* edges, GetEdges(grant.position, granted));
  PrefetchEdges(grant, index + 1);
  const std::vector<BatchTables> tables = TablesOf(granted.bucket);
  const BucketTrainer::Target target{grant.position.pass, granted.bucket, &tables,
                                     index == 0 && IsFresh(grant)};

  BucketStats stats;
  stats.bucket = granted.bucket;
  stats.trained_edges = edges->train.size();
  stats.held_out_edges = edges->held_out.size();

  TrainingProgress progress;
  progress.position = grant.position;
  progress.bucket = granted.bucket;
  progress.bucket_edges = edges->train.size();
  const bool evaluate = edges->held_out.size() > 0;
  if (evaluate) {
    progress.phase = TrainingProgress::Phase::kEvaluatingBefore;
    WEFT_ASSIGN_OR_RETURN(stats.eval_before, Evaluate(target, edges->held_out, &progress, stop));
  }
  progress.phase = TrainingProgress::Phase::kTraining;
  const std::function<void()> report = [&] {
    const BucketTrainer::Progress now = trainer_->progress();
    progress.done_edges = now.edges;
    progress.loss = now.edges > 0 ? now.loss / static_cast<double>(now.edges) : 0;
    services_.observer->OnProgress(progress);
  };
  absl::StatusOr<BucketTrainer::TrainResult> result;
  {
    const PhaseClock::Span span(phases_, TrainingPhase::kTrain);
    result = trainer_->Train(target, edges->train,
                             {&stop, services_.observer != nullptr ? &report : nullptr});
  }
  WEFT_ASSIGN_OR_RETURN(BucketTrainer::TrainResult trained, std::move(result));
  stats.train = std::move(trained.stats);
  stats.train_seconds = trained.seconds;
  if (evaluate) {
    progress.phase = TrainingProgress::Phase::kEvaluatingAfter;
    WEFT_ASSIGN_OR_RETURN(stats.eval_after, Evaluate(target, edges->held_out, &progress, stop));
  }
  if (index + 1 == grant.buckets.size()) WEFT_RETURN_IF_ERROR(CheckFinite(grant));
  return stats;
}

absl::Status TrainingLoop::CheckFinite(const Grant& grant) {
  const PhaseClock::Span span(phases_, TrainingPhase::kFinish);
  const Bucket bucket = grant.buckets.back().bucket;
  const auto where = absl::StrCat("bucket (", bucket.lhs, ", ", bucket.rhs, "): ");
  for (const GrantedPartition& p : grant.partitions) {
    WEFT_RETURN_IF_ERROR(CheckFinite(absl::StrCat(where, "partition ", p.key.partition, " of ",
                                                  task_.config.entities[p.key.entity_type].name),
                                     pipeline_.partition(p.key).embeddings));
  }
  for (size_t type = 0; type < live_->unpartitioned.size(); ++type) {
    WEFT_RETURN_IF_ERROR(CheckFinite(absl::StrCat(where, task_.config.entities[type].name),
                                     live_->unpartitioned[type].embeddings));
  }
  for (const Parameter& parameter : live_->parameters.all()) {
    WEFT_RETURN_IF_ERROR(
        CheckFinite(absl::StrCat(where, "parameter ", parameter.name), parameter.values));
  }
  return absl::OkStatus();
}

absl::Status TrainingLoop::CheckFinite(absl::string_view name, const FloatBlock& values) {
  constexpr int64_t kFloats = int64_t{1} << 18;  // a task: enough to be worth waking a worker
  const auto check = [&](int, int64_t task) -> absl::Status {
    const int64_t begin = task * kFloats;
    const auto part = values.span().subspan(
        static_cast<size_t>(begin), static_cast<size_t>(std::min(kFloats, values.size() - begin)));
    const size_t bad = FirstNotFinite(part);
    if (bad == part.size()) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat(
        name, ": row ", (begin + static_cast<int64_t>(bad)) / values.cols(), " became ", part[bad],
        ": lower lr, or limit the embeddings by max_norm or regularization_coef"));
  };
  const int64_t tasks = (values.size() + kFloats - 1) / kFloats;
  return tasks == 1 ? check(0, 0) : pool_.Run(tasks, check);
}

absl::StatusOr<Stats> TrainingLoop::Evaluate(const BucketTrainer::Target& target,
                                             const GroupedEdges& edges, TrainingProgress* progress,
                                             const std::atomic<bool>& stop) {
  const PhaseClock::Span span(phases_, TrainingPhase::kEvaluate);
  const std::function<void()> report = [&] { services_.observer->OnProgress(*progress); };
  return trainer_->Evaluate(target, edges,
                            {&stop, services_.observer != nullptr ? &report : nullptr});
}

std::vector<BatchTables> TrainingLoop::TablesOf(Bucket bucket) {
  auto table = [&](EntityTypeId type, Side side) {
    if (!task_.IsShared(type)) {
      return View(pipeline_.partition(task_.Partition(type, side, bucket)));
    }
    EmbeddingTable shared = View(live_->unpartitioned[type]);
    if (!live_->unpartitioned_changed.empty()) {
      shared.changed = live_->unpartitioned_changed[type].data();
    }
    return shared;
  };
  std::vector<BatchTables> tables;
  for (const RelationSpec& relation : task_.spec.relations) {
    tables.push_back({table(relation.lhs, Side::kLhs), table(relation.rhs, Side::kRhs)});
  }
  return tables;
}

bool TrainingLoop::IsFresh(const Grant& grant) const {
  if (task_.config.hogwild_delay == 0) return false;
  // What is shared is fresh in the first pass.
  if (grant.partitions.empty()) return grant.position.pass == 0;
  return std::ranges::any_of(grant.partitions, [](const GrantedPartition& p) {
    return p.source == GrantedPartition::Source::kInitialise;
  });
}

void TrainingLoop::PrefetchEdges(const Grant& grant, size_t next_bucket) {
  if (next_bucket < grant.buckets.size()) {
    edges_.Prefetch(grant.position, grant.buckets[next_bucket].bucket);
  } else if (grant.hinted_bucket.has_value()) {
    edges_.Prefetch(grant.position, *grant.hinted_bucket);
  } else if (task_.config.NumPartitions(Side::kLhs) == 1 &&
             task_.config.NumPartitions(Side::kRhs) == 1) {
    // There is but one bucket: what comes is its next edge chunk.
    if (const std::optional<PassPosition> next = NextPass(grant.position)) {
      edges_.Prefetch(*next, grant.buckets.front().bucket);
    }
  }
}

std::optional<PassPosition> TrainingLoop::NextPass(PassPosition position) const {
  ++position.pass;
  if (++position.edge_chunk < position.num_edge_chunks) return position;
  position.edge_chunk = 0;
  if (++position.edge_path < static_cast<int>(task_.config.edge_paths.size())) return position;
  position.edge_path = 0;
  if (++position.epoch < task_.config.num_epochs) return position;
  return std::nullopt;
}

}  // namespace weft
