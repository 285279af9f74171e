#include "cli/epoch_estimate.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "services/common/status_macros.h"
#include "services/lock_server/memory_run_store.h"
#include "services/lock_server/run_coordinator.h"
#include "services/trainer/local/local_start.h"

namespace weft::cli {
namespace {

constexpr int64_t kMaxBuckets = 300'000;  // of an epoch: some seconds

class Simulation {
 public:
  Simulation(const RunConfig& config, const LocalData& data) : config_(config), data_(data) {}

  absl::StatusOr<EpochEstimate> Run(RunPlan plan, RunState state, int trainers) {
    plan.num_epochs = 1;
    WEFT_ASSIGN_OR_RETURN(run_, RunCoordinator::Start(std::move(plan), std::move(state), &store_));
    for (int i = 0; i < trainers; ++i) trainers_.push_back({run_->Register(), {}, {}, 0, 0});
    while (!run_->progress().done) WEFT_RETURN_IF_ERROR(Step());
    estimate_.busy_trainers =
        now_ > 0 ? static_cast<double>(estimate_.edges) / static_cast<double>(now_) : 1;
    return estimate_;
  }

 private:
  struct Trainer {
    RunCoordinator::SessionId session = 0;
    std::map<PartitionKey, Token> copies;
    std::optional<Grant> grant;
    uint64_t number = 0;
    int64_t ready_at = 0;  // in edges
  };

  absl::Status Step() {
    if (const std::optional<CompletePass> pass = run_->complete_pass()) {
      return run_->PassCommitted(pass->version);
    }
    Trainer* first = nullptr;
    for (Trainer& trainer : trainers_) {
      if (!trainer.grant.has_value()) WEFT_RETURN_IF_ERROR(Acquire(&trainer));
      if (!trainer.grant.has_value()) continue;
      if (first == nullptr || trainer.ready_at < first->ready_at) first = &trainer;
    }
    if (first == nullptr) return absl::InternalError("nothing can be granted");
    now_ = first->ready_at;
    return Release(first);
  }

  absl::Status Acquire(Trainer* trainer) {
    AcquireRequest request;
    request.number = trainer->number + 1;
    for (const auto& [key, token] : trainer->copies) request.resident.push_back({key, token});
    WEFT_ASSIGN_OR_RETURN(AcquireResult result, run_->Acquire(trainer->session, request));
    if (!result.grant.has_value()) return absl::OkStatus();
    ++trainer->number;
    ++estimate_.grants;
    const Grant& grant = trainer->grant.emplace(*std::move(result.grant));
    for (const GrantedPartition& partition : grant.partitions) {
      if (partition.source != GrantedPartition::Source::kKeep) {
        estimate_.read_bytes += BytesOf(partition.key);
      }
      trainer->copies[partition.key] = partition.base;
    }
    for (const PartitionKey& key : grant.let_go) {
      if (trainer->copies.size() <= static_cast<size_t>(config_.resident_partitions)) break;
      trainer->copies.erase(key);
    }
    trainer->ready_at = now_;
    for (const GrantedBucket& bucket : grant.buckets) trainer->ready_at += bucket.expected_edges;
    return absl::OkStatus();
  }

  absl::Status Release(Trainer* trainer) {
    const Grant grant = *std::exchange(trainer->grant, std::nullopt);
    ReleaseRequest release;
    release.token = grant.token;
    for (const GrantedPartition& partition : grant.partitions) {
      release.stored.push_back(partition.key);
      estimate_.stored_bytes += BytesOf(partition.key);
      trainer->copies[partition.key] = grant.token;
    }
    for (const GrantedBucket& bucket : grant.buckets) {
      BucketStats& stats = release.buckets.emplace_back();
      stats.bucket = bucket.bucket;
      stats.trained_edges = bucket.expected_edges;
      estimate_.edges += bucket.expected_edges;
    }
    return run_->Release(trainer->session, release).status();
  }

  int64_t BytesOf(PartitionKey key) const {
    const int64_t row = 4 * (int64_t{config_.EntityDimension(key.entity_type)} + 1);
    return row * data_.entity_counts[static_cast<size_t>(key.entity_type)]
                                    [static_cast<size_t>(key.partition)];
  }

  const RunConfig& config_;
  const LocalData& data_;
  MemoryRunStore store_;
  std::unique_ptr<RunCoordinator> run_;
  std::vector<Trainer> trainers_;
  int64_t now_ = 0;  // in edges of one trainer
  EpochEstimate estimate_;
};

}  // namespace

absl::StatusOr<std::optional<EpochEstimate>> EstimateEpoch(const RunConfig& config,
                                                           const LocalData& data, int trainers,
                                                           double edges_per_second) {
  RunPlan plan = MakeRunPlan(config, data);
  plan.edges_per_second = edges_per_second;
  RunState state;
  state.run_id = "estimate";
  state.seed = config.seed.value_or(0);
  state.position.num_edge_chunks =
      config.num_edge_chunks.value_or(data.NumEdgeChunks(config.max_edges_per_chunk));
  const int64_t buckets = int64_t{plan.num_lhs} * plan.num_rhs * state.position.num_edge_chunks *
                          static_cast<int64_t>(data.edge_paths.size());
  if (buckets > kMaxBuckets) return std::nullopt;
  std::vector<int> num_partitions;
  for (const EntityConfig& type : config.entities) num_partitions.push_back(type.num_partitions);
  state.versions = VersionTable(num_partitions);
  for (const std::string& path : config.edge_paths) state.edge_paths.push_back({path, 0});
  WEFT_ASSIGN_OR_RETURN(EpochEstimate estimate,
                        Simulation(config, data).Run(std::move(plan), std::move(state), trainers));
  return std::optional(estimate);
}

}  // namespace weft::cli
