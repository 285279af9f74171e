#include "services/trainer/cluster/cluster_trainer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/edge_codec.h"
#include "services/common/available_memory.h"
#include "services/common/logging.h"
#include "services/common/metrics.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_names.h"
#include "services/trainer/cluster/trainer_metrics.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/memory_plan.h"
#include "services/trainer/reference_loader.h"
#include "services/trainer/training_task.h"

namespace weft {
namespace {

// Shows the lock server that the trainer is getting on, and people what it does.
class ClusterObserver : public TrainingObserver {
 public:
  ClusterObserver(GrpcLockClient* lock, TrainerMetrics* metrics) : lock_(lock), metrics_(metrics) {}

  void OnProgress(const TrainingProgress& progress) override {
    const bool same = progress.bucket == bucket_ && progress.done_edges >= edges_;
    // Evaluation has no count of its own; that it is called at all is progress.
    lock_->AddProgress(1 + static_cast<uint64_t>(progress.done_edges - (same ? edges_ : 0)));
    bucket_ = progress.bucket;
    edges_ = progress.done_edges;
    metrics_->OnProgress(progress);
  }

  void OnBucketTrained(const Grant& grant, const BucketStats& stats) override {
    lock_->AddProgress(1);
    metrics_->OnBucketTrained(stats);
    LogInfo("bucket trained", {{"pass", grant.position.pass},
                               {"bucket", LogName(stats.bucket)},
                               {"token", grant.token},
                               {"edges", stats.trained_edges},
                               {"held_out", stats.held_out_edges},
                               {"seconds", stats.train_seconds},
                               {"loss", OrNan(stats.train.Find("loss"))}});
  }

 private:
  GrpcLockClient* const lock_;
  TrainerMetrics* const metrics_;
  Bucket bucket_{-1, -1};
  int64_t edges_ = 0;
};

class ClusterTrainerImpl : public ClusterTrainer {
 public:
  explicit ClusterTrainerImpl(const Options& options) : options_(options) {}

  absl::Status Begin() {
    WEFT_ASSIGN_OR_RETURN(clients_, ClusterClients::Connect(options_.clients));
    const GrpcLockClient::Session& session = clients_->session();
    WEFT_RETURN_IF_ERROR(TakeConfig(session.run));
    WEFT_RETURN_IF_ERROR(MakeTask(session.run));
    WEFT_RETURN_IF_ERROR(CheckData(session.run));
    WEFT_RETURN_IF_ERROR(clients_->Configure(task_.config));
    SetLogContext({{"run", session.context.run_id}, {"trainer", session.name}});
    LogInfo("trainer begins", {{"name", session.name},
                               {"run", session.context.run_id},
                               {"threads", task_.config.NumThreads()}});
    return absl::OkStatus();
  }

  const RunConfig& config() const override { return task_.config; }
  const std::string& name() const override { return clients_->session().name; }

  absl::StatusOr<TrainingSummary> Run() override {
    // Refused before anything of that size is taken.
    const absl::StatusOr<MemoryPlan> memory =
        PlanMemory(task_, {.bucket_edges = LargestEdgeChunk(task_.config, largest_bucket_),
                           .available = AvailableMemory(),
                           .in_cluster = true,
                           .bucket_features = FeaturesOfChunk(task_.config, largest_bucket_,
                                                              largest_bucket_features_)});
    if (!memory.ok()) {
      clients_->lock().Leave().IgnoreError();
      return memory.status();
    }
    WEFT_ASSIGN_OR_RETURN(const BatchStepFactory* factory, ChooseFactory());
    WEFT_ASSIGN_OR_RETURN(SharedState live, MakeSharedState(task_, *factory));
    WEFT_RETURN_IF_ERROR(factory->Make(task_.spec, &live.parameters).status());
    TrainingLoop::Options options;
    options.num_threads = task_.config.NumThreads();
    options.pipeline.prefetch = memory->prefetch;
    options.pipeline.background_store = memory->background_store;
    options.pipeline.resident_partitions = task_.config.resident_partitions;
    options.pipeline.store_again = options_.clients.retry;
    metrics_.SetThreads(options.num_threads);
    ClusterObserver observer(&clients_->lock(), &metrics_);
    TrainingLoop loop(task_, options,
                      {&clients_->lock(), &clients_->params(), &clients_->partitions(), factory,
                       &observer, clients_->edges(), metrics_.phases()},
                      &live);
    absl::StatusOr<TrainingSummary> summary = loop.Run(stop_);
    if (stop_ && absl::IsCancelled(summary.status())) {
      clients_->lock().Leave().IgnoreError();
      summary = TrainingSummary();
      summary->stopped = true;
    }
    return summary;
  }

  void WriteMetrics(MetricsPage* page) const override {
    metrics_.Write(page);
    clients_->WriteMetrics(page);
  }

  void Stop() override {
    stop_ = true;
    clients_->lock().StopAcquiring();
  }
  void Cancel() override { clients_->Cancel(); }

 private:
  absl::Status TakeConfig(const GrpcLockClient::RunInfo& run) {
    std::vector<std::string> overrides;
    if (options_.threads > 0) overrides.push_back(absl::StrCat("threads=", options_.threads));
    WEFT_ASSIGN_OR_RETURN(ConfigResult result,
                          ParseRunConfig(run.config_json,
                                         absl::StrCat("the configuration of the lock server at ",
                                                      options_.clients.lock_server),
                                         overrides));
    task_.config = std::move(result.config);
    if (!options_.entity_path.empty()) task_.config.entity_path = options_.entity_path;
    if (!options_.edge_paths.empty()) {
      if (options_.edge_paths.size() != task_.config.edge_paths.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("the run has ", task_.config.edge_paths.size(), " edge paths, ",
                         options_.edge_paths.size(), " were given"));
      }
      task_.config.edge_paths = options_.edge_paths;
    }
    return absl::OkStatus();
  }

  absl::Status MakeTask(const GrpcLockClient::RunInfo& run) {
    bool fits = run.entity_counts.size() == task_.config.entities.size();
    for (size_t t = 0; fits && t < run.entity_counts.size(); ++t) {
      fits = run.entity_counts[t].size() ==
             static_cast<size_t>(task_.config.entities[t].num_partitions);
    }
    if (!fits) return absl::InvalidArgumentError("the lock server's entity counts are not whole");
    RunConfig config = std::move(task_.config);
    config.seed = run.seed;
    WEFT_ASSIGN_OR_RETURN(task_,
                          MakeTrainingTask(config, run.entity_counts, run.num_dynamic_relations));
    task_.seed = run.seed;
    return absl::OkStatus();
  }

  absl::Status CheckData(const GrpcLockClient::RunInfo& run) {
    if (task_.config.HasClusterEdges()) {
      largest_bucket_ = run.largest_bucket;
      // With the features, beside the edges, come their numbers and weights: a few too many.
      largest_bucket_features_ = std::max<int64_t>(
          0, (run.largest_bucket_bytes - largest_bucket_ * EdgeBytes(/*weighted=*/false)) /
                 int64_t{sizeof(EntityOffset)});
      return absl::OkStatus();  // they are the run's own
    }
    WEFT_ASSIGN_OR_RETURN(const LocalData data, ReadLocalData(task_.config));
    std::vector<GrpcLockClient::RunInfo::DataSet> sets;
    for (size_t i = 0; i < data.edge_paths.size(); ++i) {
      // Under the run's own name of it: here it may lie elsewhere.
      const std::string& name =
          i < run.data_sets.size() ? run.data_sets[i].edge_path : task_.config.edge_paths[i];
      sets.push_back({name, data.edge_paths[i].digest});
    }
    largest_bucket_ = data.LargestBucket();
    largest_bucket_features_ = data.LargestBucketFeatures();
    return clients_->lock().CheckDataSets(std::move(sets));
  }

  absl::StatusOr<const BatchStepFactory*> ChooseFactory() const {
    static const FusedBatchStepFactory fused;
    if (task_.config.compute == Compute::kReference) return LoadReferenceFactory();
    return &fused;
  }

  const Options options_;
  std::unique_ptr<ClusterClients> clients_;
  TrainingTask task_;
  TrainerMetrics metrics_;
  int64_t largest_bucket_ = 0;
  int64_t largest_bucket_features_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterTrainer>> ClusterTrainer::Begin(const Options& options) {
  auto trainer = std::make_unique<ClusterTrainerImpl>(options);
  WEFT_RETURN_IF_ERROR(trainer->Begin());
  return trainer;
}

}  // namespace weft
