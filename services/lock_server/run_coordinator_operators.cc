// What operators ask for, and what they are shown.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {

absl::Status RunCoordinator::Pause(bool paused) {
  MutexLock lock(&mu_);
  if (state_.paused == paused) return absl::OkStatus();
  Event(LogEvent(paused ? "paused" : "goes on"));
  WEFT_RETURN_IF_ERROR(Write(RunPaused{paused}));
  ++grant_revision_;
  return absl::OkStatus();
}

absl::Status RunCoordinator::Preserve(int64_t version, bool preserved) {
  MutexLock lock(&mu_);
  const Manifest* manifest = state_.manifests.FindVersion(version);
  if (manifest == nullptr) return absl::NotFoundError(absl::StrCat("no version ", version));
  if (manifest->preserved == preserved) return absl::OkStatus();
  return Write(ManifestMarked{manifest->token, preserved, {}});
}

absl::Status RunCoordinator::Pin(const std::string& request_id, int64_t version,
                                 SteadyTime::duration ttl) {
  MutexLock lock(&mu_);
  const Manifest* manifest = state_.manifests.FindVersion(version);
  if (manifest == nullptr) return absl::NotFoundError(absl::StrCat("no version ", version));
  pins_[request_id] = {manifest->token, clock_.SteadyNow() + ttl};
  return absl::OkStatus();
}

void RunCoordinator::Unpin(const std::string& request_id) {
  MutexLock lock(&mu_);
  pins_.erase(request_id);
}

absl::Status RunCoordinator::Rollback(const std::string& request_id, int64_t version) {
  MutexLock lock(&mu_);
  if (!request_id.empty() && request_id == state_.last_rollback) return absl::OkStatus();
  const Manifest* manifest = state_.manifests.FindVersion(version);
  if (manifest == nullptr) return absl::NotFoundError(absl::StrCat("no version ", version));
  if (!IsWhole(*manifest)) {
    return absl::FailedPreconditionError(absl::StrCat("version ", version, " cannot be read"));
  }
  state_.last_rollback = request_id;
  WEFT_RETURN_IF_ERROR(Rewind(manifest->token, "asked for"));
  return Advance();
}

absl::Status RunCoordinator::ForgetStore(StoreId store) {
  MutexLock lock(&mu_);
  const ServerRecord* server = FindServer(store);
  if (server == nullptr) return absl::NotFoundError("no such store");
  if (server->retired) return absl::OkStatus();
  Event(LogEvent("server retired", {{"address", server->info.address}}));
  WEFT_RETURN_IF_ERROR(Write(ServerLost{store, true}));
  places_lost_ = true;
  ++servers_revision_;
  ++sync_revision_;
  return Advance();
}

absl::Status RunCoordinator::ReportEvaluation(int64_t version, const std::string& metric,
                                              double value) {
  MutexLock lock(&mu_);
  const Manifest* manifest = state_.manifests.FindVersion(version);
  if (manifest == nullptr) return absl::NotFoundError(absl::StrCat("no version ", version));
  return Write(ManifestMarked{manifest->token, std::nullopt, {{metric, value}}});
}

ManifestView RunCoordinator::Describe(const Manifest& manifest) const {
  ManifestView view;
  view.token = manifest.token;
  view.generation = manifest.generation;
  view.version = manifest.version;
  view.position = manifest.position;
  view.state = manifest.state;
  view.preserved = manifest.preserved;
  view.best = plan_.early_stopping.has_value() && manifest.version > 0 &&
              manifest.version == state_.early_stopping.best_version;
  view.pins = static_cast<int>(std::ranges::count_if(
      pins_, [&](const auto& pin) { return pin.second.manifest == manifest.token; }));
  view.metrics = manifest.metrics;
  return view;
}

absl::StatusOr<CheckpointView> RunCoordinator::Checkpoint(int64_t version) const {
  MutexLock lock(&mu_);
  const Manifest* manifest = nullptr;
  for (const auto& [token, candidate] : state_.manifests.manifests()) {
    const bool named = version == 0 ? candidate.version > 0 : candidate.version == version;
    if (named && candidate.state == Manifest::State::kCommitted) manifest = &candidate;
  }
  if (manifest == nullptr) {
    return absl::NotFoundError(version == 0 ? "nothing is committed yet"
                                            : absl::StrCat("no version ", version));
  }
  CheckpointView view;
  view.manifest = Describe(*manifest);
  view.buckets = manifest->ended_pass;
  absl::flat_hash_map<PartitionKey, Token> tokens;
  for (const PartitionVersion& stored : manifest->versions) {
    if (stored.key.entity_type == kSnapshotType) AddPlaces(stored, &view.snapshots);
    tokens[stored.key] = stored.token;
  }
  for (const PartitionKey& key : state_.versions.keys()) {
    const auto token = tokens.find(key);
    if (token == tokens.end()) {
      view.partitions.push_back({{key, kInitialToken}, {}});
    } else {
      AddPlaces({key, token->second}, &view.partitions);
    }
  }
  return view;
}

RunView RunCoordinator::View(bool with_buckets) const {
  RunView view;
  view.progress = progress();
  MutexLock lock(&mu_);
  view.phase = Phase();
  view.num_lhs = plan_.num_lhs;
  view.num_rhs = plan_.num_rhs;
  view.servers = Servers();
  if (state_.failure.has_value()) view.reason = state_.failure->reason;
  if (view.phase == RunPhase::kDone) {
    view.reason = view.progress.stopped_early ? "stopped early" : "complete";
  }
  if (AwaitsEdges()) {
    view.reason = MissingEdges();
    for (const EdgePath& path : state_.edge_paths) view.missing_edges.push_back(path.path);
  } else if (lost_edges_ > 0) {
    view.reason = absl::StrCat("edges of ", lost_edges_, " buckets are lost; import them again");
  } else if (AwaitsPush()) {
    view.reason = MissingCheckpoint();
    view.missing_checkpoint = plan_.cluster->init_path;
  } else if (const std::string waits_for = WaitsFor(); !waits_for.empty()) {
    view.reason = waits_for;
  }
  const SteadyTime now = clock_.SteadyNow();
  for (const auto& [id, session] : state_.sessions) {
    TrainerView trainer = {id, session.name, {}, 0, {}};
    if (const auto lease = leases_.Of(id, now); lease.has_value()) {
      trainer.lease_left = lease->left;
      trainer.progress = lease->progress;
    }
    for (const Token token : session.grants) {
      for (const Bucket& bucket : state_.grants.at(token).buckets) {
        trainer.buckets.push_back(bucket);
      }
    }
    view.trainers.push_back(std::move(trainer));
  }
  std::ranges::sort(view.trainers, {}, &TrainerView::name);
  if (plan_.cluster.has_value()) {
    for (const ServerRecord& server : state_.servers) {
      if (!server.retired && !IsLive(server)) view.silent_servers.push_back(server.info.store_id);
    }
  }
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    view.manifests.push_back(Describe(manifest));
  }
  if (!with_buckets || !accounting_.has_value()) return view;
  view.buckets = BucketStates();
  return view;
}

std::vector<BucketStatus> RunCoordinator::BucketStates() const {
  std::vector<BucketStatus> buckets(
      static_cast<size_t>(scheduler_.num_buckets()),
      accounting_.has_value() || Done() ? BucketStatus::kDone : BucketStatus::kFree);
  if (!accounting_.has_value()) return buckets;
  const auto at = [&](Bucket b) -> BucketStatus& {
    return buckets[static_cast<size_t>(b.lhs) * static_cast<size_t>(plan_.num_rhs) +
                   static_cast<size_t>(b.rhs)];
  };
  for (PartitionId lhs = 0; lhs < plan_.num_lhs; ++lhs) {
    for (PartitionId rhs = 0; rhs < plan_.num_rhs; ++rhs) {
      if (scheduler_.IsFree({lhs, rhs})) at({lhs, rhs}) = BucketStatus::kFree;
    }
  }
  for (const auto& [token, grant] : state_.grants) {
    for (const Bucket& bucket : grant.buckets) at(bucket) = BucketStatus::kGranted;
  }
  return buckets;
}

}  // namespace weft
