// Passes, manifests, and going back.
#include <algorithm>
#include <climits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "services/lock_server/bucket_order.h"
#include "services/lock_server/pass_sequence.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_names.h"

namespace weft {

void RunCoordinator::BeginPass() {
  accounting_.reset();
  cut_ordered_ = false;
  ++grant_revision_;
  totals_ = {};
  for (const DoneBucket& bucket : state_.done) totals_.Add(bucket.stats);
  edges_before_pass_ = EdgesBeforePass(plan_.bucket_edges, state_.position);
  if (AwaitsEdges() || Done()) return;
  const PassPosition& position = state_.position;
  accounting_.emplace(plan_.bucket_edges[static_cast<size_t>(position.edge_path)], plan_.num_rhs,
                      position);
  std::vector<Bucket> done = accounting_->EmptyBuckets();
  for (const DoneBucket& bucket : state_.done) done.push_back(bucket.stats.bucket);
  const bool square = std::ranges::any_of(
      plan_.partitioned_types,
      [](const BucketScheduler::PartitionedType& type) { return type.lhs && type.rhs; });
  const bool beta =
      plan_.resident_partitions > 2 && square && plan_.bucket_order != BucketOrder::kRandom;
  scheduler_.BeginPass(
      beta ? MakeBetaOrder(plan_.num_lhs, plan_.resident_partitions, state_.seed, position.pass)
           : MakeBucketOrder(plan_.bucket_order, plan_.num_lhs, plan_.num_rhs, state_.seed,
                             position.pass),
      done);
  std::vector<Token> tokens;
  for (const auto& [token, grant] : state_.grants) tokens.push_back(token);
  std::ranges::sort(tokens);
  for (const Token token : tokens) {
    const GrantRecord& grant = state_.grants.at(token);
    scheduler_.Restore(grant.session, token, grant.buckets);
  }
}

std::vector<DoneBucket> RunCoordinator::EndPass() {
  WEFT_CHECK(Complete() && state_.grants.empty());
  std::vector<DoneBucket> ended = std::exchange(state_.done, {});
  if (!ended.empty()) totals_before_ = totals_;
  state_.attempts.clear();
  std::vector<BucketStats> stats;
  for (const DoneBucket& bucket : ended) stats.push_back(bucket.stats);
  AddPass(plan_.early_stopping, stats, &state_.early_stopping);
  const int epoch = state_.position.epoch;
  state_.position = NextPass(state_.position, static_cast<int>(plan_.bucket_edges.size()));
  if (state_.position.epoch > epoch) {
    EndEpoch(plan_.early_stopping, epoch, state_.position.pass, &state_.early_stopping);
  }
  return ended;
}

std::optional<CompletePass> RunCoordinator::complete_pass() const {
  MutexLock lock(&mu_);
  if (!Complete()) return std::nullopt;
  CompletePass pass;
  pass.version = state_.position.pass + 1;
  pass.position = state_.position;
  const PassPosition next = NextPass(state_.position, static_cast<int>(plan_.bucket_edges.size()));
  pass.ends_epoch = next.epoch > state_.position.epoch;
  pass.buckets = state_.done;
  for (const PartitionKey& key : state_.versions.keys()) {
    pass.versions.push_back({key, state_.versions.current(key)});
  }
  return pass;
}

absl::Status RunCoordinator::PassCommitted(int64_t version) {
  MutexLock lock(&mu_);
  if (version == state_.position.pass) return absl::OkStatus();
  WEFT_CHECK(!plan_.cluster.has_value() && version == state_.position.pass + 1);
  const EarlyStoppingState& stopping = state_.early_stopping;
  const int64_t before[] = {state_.position.pass, stopping.best_version,
                            stopping.epoch_first_version};
  EndPass();
  state_.versions.CommitAll();
  for (const int64_t old : before) {
    const bool judged = plan_.early_stopping.has_value() &&
                        (old == stopping.best_version || old == stopping.epoch_first_version);
    const auto& obsolete = state_.obsolete_versions;
    if (old == 0 || judged || std::ranges::find(obsolete, old) != obsolete.end()) continue;
    state_.obsolete_versions.push_back(old);
  }
  // Readers have switched already: when this fails, nothing is granted until the store is opened
  // again.
  accounting_.reset();
  WEFT_RETURN_IF_ERROR(store_->Replace(state_));
  BeginPass();
  return absl::OkStatus();
}

std::vector<int64_t> RunCoordinator::obsolete_versions() const {
  MutexLock lock(&mu_);
  return state_.obsolete_versions;
}

void RunCoordinator::FilesRemoved(const std::vector<int64_t>& versions) {
  MutexLock lock(&mu_);
  for (const int64_t version : versions) std::erase(state_.obsolete_versions, version);
}

Manifest RunCoordinator::MakeManifest(int64_t version) {
  Manifest manifest;
  manifest.token = ++last_token_;
  manifest.generation = state_.generation;
  manifest.version = version;
  manifest.position = state_.position;
  manifest.early_stopping = state_.early_stopping;
  counters_.ManifestBegan(manifest.token, clock_.SteadyNow());
  for (const PartitionKey& key : state_.versions.keys()) {
    const Token current = state_.versions.current(key);
    if (current != kInitialToken) manifest.versions.push_back({key, current});
  }
  for (int i = 0; i < plan_.cluster->num_param_servers; ++i) {
    manifest.versions.push_back({{kSnapshotType, i}, manifest.token});
  }
  return manifest;
}

absl::Status RunCoordinator::Advance() {
  if (!plan_.cluster.has_value()) return absl::OkStatus();
  if (state_.failure.has_value()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(RewindIfLost());
  if (AwaitsEdges() || AwaitsPush()) return absl::OkStatus();
  if (!state_.parameters_ready) {
    const bool ready = AllParams([](const ParamServerState& params, const RunState& state) {
      return params.generation == state.generation;
    });
    if (!ready) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(Write(ParametersReady{}));
    Event(LogEvent("ready", {{"generation", state_.generation}}));
    ++grant_revision_;
    ++sync_revision_;
  }
  // A pass without edges is complete as soon as it begins.
  for (bool again = true; again;) WEFT_RETURN_IF_ERROR(CutIfAllHave(&again));
  return CommitManifests();
}

absl::Status RunCoordinator::CutIfAllHave(bool* again) {
  *again = false;
  if (!Complete()) return absl::OkStatus();
  const bool cut = AllParams([](const ParamServerState& params, const RunState& state) {
    return params.generation == state.generation && params.first_open_pass > state.position.pass;
  });
  if (!cut) {
    if (!std::exchange(cut_ordered_, true)) ++sync_revision_;  // they are to be told
    return absl::OkStatus();
  }
  const PassPosition over = state_.position;
  std::vector<DoneBucket> ended = EndPass();
  Manifest manifest = MakeManifest(state_.position.pass);
  manifest.ended_pass = std::move(ended);
  manifest.preserved = state_.position.epoch > over.epoch &&
                       state_.position.epoch % plan_.preservation_interval.value_or(INT_MAX) == 0;
  state_.manifests.Put(std::move(manifest));
  manifests_changed_ = true;
  last_manifest_ = clock_.SteadyNow();
  accounting_.reset();
  WEFT_RETURN_IF_ERROR(store_->Replace(state_));
  BeginPass();
  view_changed_ = true;
  ++sync_revision_;
  Event(LogEvent("pass done",
                 {{"pass", over.pass}, {"epoch", over.epoch}, {"version", state_.position.pass}}));
  *again = true;
  return absl::OkStatus();
}

absl::Status RunCoordinator::CommitManifests() {
  if (!std::exchange(manifests_changed_, false)) return absl::OkStatus();
  std::vector<Token> whole;
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (manifest.state != Manifest::State::kPending) continue;
    const bool durable =
        std::ranges::all_of(manifest.versions, [&](const PartitionVersion& version) {
          mu_.AssertHeld();
          return state_.places.IsDurable(version);
        });
    if (durable) whole.push_back(token);
  }
  // The newest is what the run goes back to; of the older ones those stay that have a reason.
  const Manifest* before = NewestOfThisLife();
  if (whole.empty() && before == nullptr) return absl::OkStatus();
  const Token newest = whole.empty() ? before->token : whole.back();
  const EarlyStoppingState& stopping = state_.early_stopping;
  const std::optional<Token> backup = BackupOf(newest);
  ManifestCommitted committed = {newest, {}};
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (token >= newest) break;
    const bool judged = plan_.early_stopping.has_value() && manifest.version > 0 &&
                        (manifest.version == stopping.best_version ||
                         manifest.version == stopping.epoch_first_version);
    const bool pinned = std::ranges::any_of(
        pins_, [at = token](const auto& pin) { return pin.second.manifest == at; });
    const bool stays = manifest.state != Manifest::State::kBroken &&
                       (manifest.preserved || judged || pinned || token == backup);
    if (!stays) committed.removed.push_back(token);
  }
  if (whole.empty() && committed.removed.empty()) return absl::OkStatus();
  for (const Token token : whole) {
    if (token == newest || std::ranges::find(committed.removed, token) != committed.removed.end()) {
      continue;
    }
    WEFT_RETURN_IF_ERROR(Write(ManifestCommitted{token, {}}));
  }
  for (const Token token : committed.removed) manifest_bytes_.erase(token);
  for (const Token token : whole) counters_.ManifestCommitted(token, clock_.SteadyNow());
  if (!whole.empty()) {
    Event(LogEvent("manifest committed",
                   {{"version", state_.manifests.Find(newest)->version}, {"token", newest}}));
  }
  WEFT_RETURN_IF_ERROR(Write(committed));
  ++garbage_;
  ++sync_revision_;
  return absl::OkStatus();
}

std::optional<Token> RunCoordinator::BackupOf(Token newest) const {
  if (plan_.cluster->encode_state == nullptr) return std::nullopt;
  std::optional<Token> stored;
  for (const auto& [version, shards] : state_.places.versions()) {
    if (version.key.entity_type != kManifestType || version.token > newest) continue;
    if (state_.places.IsReadable(version)) stored = std::max(stored, std::optional(version.token));
  }
  return stored;
}

const Manifest* RunCoordinator::NewestOfThisLife() const {
  // Not what was preserved of a life that was given up.
  return state_.manifests.NewestCommitted([&](const Manifest& manifest) {
    mu_.AssertHeld();
    return manifest.token <= state_.origin || manifest.generation == state_.generation;
  });
}

bool RunCoordinator::IsWhole(const Manifest& manifest) const {
  return std::ranges::all_of(manifest.versions, [&](const PartitionVersion& version) {
    mu_.AssertHeld();
    return state_.places.IsReadable(version);
  });
}

absl::Status RunCoordinator::RewindIfLost() {
  if (!std::exchange(places_lost_, false)) return absl::OkStatus();
  CountLostEdges();
  for (const PartitionKey& key : state_.versions.keys()) {
    const PartitionVersion current = {key, state_.versions.current(key)};
    if (current.token == kInitialToken || state_.places.IsReadable(current)) continue;
    return RewindToNewest(absl::StrCat(ToString(key), " is lost, version ", current.token));
  }
  if (state_.parameters_ready) return absl::OkStatus();
  // What is to be restored must be there, too.
  const Manifest* origin = state_.manifests.Find(state_.origin);
  if (origin != nullptr && !IsWhole(*origin)) return RewindToNewest("a snapshot is lost");
  return absl::OkStatus();
}

absl::Status RunCoordinator::RewindToNewest(const std::string& why) {
  std::vector<int64_t> broken;
  while (const Manifest* newest = NewestOfThisLife()) {
    if (IsWhole(*newest)) return Rewind(newest->token, why);
    broken.push_back(newest->version);
    state_.manifests.MarkBroken(newest->token);  // stored with what follows
  }
  std::string list;
  for (const int64_t version : broken) absl::StrAppend(&list, " ", version);
  std::string reason =
      absl::StrCat(why, "; no manifest is whole to go back to (broken versions:", list, ")");
  WEFT_RETURN_IF_ERROR(Fail({{}, std::move(reason)}));
  return store_->Replace(state_);
}

absl::Status RunCoordinator::Rewind(Token token, const std::string& why) {
  const Manifest* manifest = state_.manifests.Find(token);
  WEFT_CHECK(manifest != nullptr);
  Event(LogEvent(
      "REWIND",
      {{"version", manifest->version}, {"cause", why}, {"generation", state_.generation + 1}},
      LogEvent::Level::kWarning));
  for (const auto& [live, grant] : state_.grants) CountGrantEnds({live}, GrantEnd::kRewound);
  counters_.sessions_ended[static_cast<size_t>(SessionEnd::kRewound)] +=
      static_cast<int64_t>(state_.sessions.size());
  counters_.Rewound();
  RewindTo(*manifest, &state_);
  leases_.Clear();
  suspects_.clear();
  accounting_.reset();
  WEFT_RETURN_IF_ERROR(store_->Replace(state_));
  BeginPass();
  view_changed_ = true;
  ++garbage_;
  ++sync_revision_;
  return absl::OkStatus();
}

}  // namespace weft
