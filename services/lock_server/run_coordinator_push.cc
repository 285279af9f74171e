// Checkpoints that are brought from outside.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_names.h"

namespace weft {

bool RunCoordinator::AwaitsPush() const {
  return plan_.cluster.has_value() && !plan_.cluster->init_path.empty() && state_.generation == 1 &&
         !state_.parameters_ready && state_.position.pass == 0 && state_.done.empty();
}

std::string RunCoordinator::MissingCheckpoint() const {
  return absl::StrCat("waits for the checkpoint of its init_path: `weft checkpoint push ",
                      plan_.cluster->init_path, " ADDRESS` of this lock server brings it");
}

absl::Status RunCoordinator::MayPush() const {
  if (AwaitsEdges()) return absl::FailedPreconditionError(absl::StrCat("the run ", MissingEdges()));
  if (state_.failure.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run has failed (", state_.failure->reason,
                     "): go back with `weft checkpoint rollback` and pause it first"));
  }
  const RunPhase phase = Phase();
  if (phase == RunPhase::kPaused || phase == RunPhase::kPreparing) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the run is not paused: `weft cluster pause ADDRESS` first; what it has trained since its "
      "last version will be lost");
}

absl::StatusOr<RunCoordinator::PushTarget> RunCoordinator::BeginPush(
    const std::string& request_id) {
  MutexLock lock(&mu_);
  if (request_id.empty()) return absl::InvalidArgumentError("a push without a request id");
  const Manifest* origin = state_.manifests.Find(state_.origin);
  const bool unchanged = origin != nullptr && origin->position == state_.position &&
                         origin->done.size() == state_.done.size();
  if (request_id == state_.last_rollback && (!state_.paused || unchanged)) {
    return PushTarget{state_.origin, true, Replicas()};
  }
  WEFT_RETURN_IF_ERROR(MayPush());
  if (request_id != state_.push.request_id) {
    Event(LogEvent("push of a checkpoint begins", {{"request", request_id}}));
    WEFT_RETURN_IF_ERROR(Write(PushBegan{{++last_token_, request_id}}));
    push_is_whole_ = false;
    ++garbage_;
  }
  return PushTarget{state_.push.token, false, Replicas()};
}

absl::Status RunCoordinator::CheckPush(Token token) const {
  if (token != kInitialToken && token == state_.push.token) return absl::OkStatus();
  return absl::AbortedError(
      "another push has taken the place of this one, or the run has gone on meanwhile");
}

absl::Status RunCoordinator::AddPushed(Token token, const std::vector<VersionInfo>& versions) {
  MutexLock lock(&mu_);
  WEFT_RETURN_IF_ERROR(CheckPush(token));
  for (const VersionInfo& info : versions) {
    const PartitionKey& key = info.version.key;
    const bool snapshot = key == PartitionKey{kSnapshotType, 0};
    if (info.version.token != token || (!snapshot && !state_.versions.Has(key))) {
      return absl::InvalidArgumentError("no partition of the run that is pushed");
    }
    const std::string what = snapshot ? std::string("the parameters") : ToString(key);
    WEFT_RETURN_IF_ERROR(Annotate(CheckShards(info), what));
    WEFT_RETURN_IF_ERROR(Annotate(CheckPlaces(info), what));
  }
  for (const VersionInfo& info : versions) WEFT_RETURN_IF_ERROR(Write(VersionStored{info}));
  return absl::OkStatus();
}

absl::Status RunCoordinator::CheckPosition(const PushedCheckpoint& pushed) const {
  const PassPosition& at = pushed.position;
  const bool possible =
      pushed.version >= 0 && at.pass == pushed.version && at.epoch >= 0 && at.edge_path >= 0 &&
      static_cast<size_t>(at.edge_path) < plan_.bucket_edges.size() &&
      at.num_edge_chunks == state_.position.num_edge_chunks && at.edge_chunk >= 0 &&
      at.edge_chunk < at.num_edge_chunks &&
      (pushed.version > 0 || (at.epoch == 0 && at.edge_path == 0 && at.edge_chunk == 0));
  if (possible) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the position after version ", pushed.version,
                                                 " is none of this run, with ",
                                                 plan_.bucket_edges.size(), " edge paths and ",
                                                 state_.position.num_edge_chunks, " edge chunks"));
}

bool RunCoordinator::IsUsed(EntityTypeId type) const {
  return std::ranges::any_of(
      plan_.partitioned_types, [&](const BucketScheduler::PartitionedType& partitioned) {
        return partitioned.id == type && (partitioned.lhs || partitioned.rhs);
      });
}

absl::StatusOr<bool> RunCoordinator::CommitPush(const PushedCheckpoint& pushed) {
  MutexLock lock(&mu_);
  const bool committed =
      state_.manifests.Find(pushed.token) != nullptr ||
      (pushed.request_id == state_.last_rollback && pushed.token != state_.push.token);
  if (committed && pushed.token != kInitialToken) return true;
  WEFT_RETURN_IF_ERROR(CheckPush(pushed.token));
  WEFT_RETURN_IF_ERROR(MayPush());
  WEFT_RETURN_IF_ERROR(CheckPosition(pushed));
  Manifest manifest;
  manifest.token = pushed.token;
  manifest.generation = state_.generation;
  manifest.version = pushed.version;
  manifest.state = Manifest::State::kCommitted;
  manifest.position = pushed.position;
  manifest.ended_pass = pushed.ended_pass;
  std::vector<PartitionKey> wanted = state_.versions.keys();
  if (plan_.cluster->num_param_servers > 0) wanted.push_back({kSnapshotType, 0});
  bool durable = true;
  for (const PartitionKey& key : wanted) {
    const PartitionVersion version = {key, pushed.token};
    const bool added = state_.places.Find(version) != nullptr;
    // A beginning may leave partitions to their initial values; no checkpoint holds what no
    // relation uses.
    const bool may_be_initial =
        key.entity_type != kSnapshotType && (pushed.version == 0 || !IsUsed(key.entity_type));
    if (!added && may_be_initial) continue;
    if (!state_.places.IsReadable(version)) {
      return absl::FailedPreconditionError(absl::StrCat(
          key.entity_type == kSnapshotType ? "the parameters" : ToString(key),
          added ? " were stored and are lost again: push once more" : " were not pushed"));
    }
    durable = durable && state_.places.IsDurable(version);
    manifest.versions.push_back(version);
  }
  if (!durable) {
    if (!std::exchange(push_is_whole_, true)) ++sync_revision_;  // memory stores are to persist it
    return false;
  }
  state_.push = {};
  state_.last_rollback = pushed.request_id;
  state_.manifests.Put(std::move(manifest));
  manifests_changed_ = true;
  WEFT_RETURN_IF_ERROR(Rewind(pushed.token, "a checkpoint was pushed"));
  WEFT_RETURN_IF_ERROR(Advance());
  return true;
}

}  // namespace weft
