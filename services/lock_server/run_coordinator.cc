#include "services/lock_server/run_coordinator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr int kTokenBits = 40;  // of the part that counts within a term

SteadyTime::duration LeaseOf(const RunPlan& plan) {
  return plan.cluster.has_value() ? plan.cluster->lease : SteadyTime::duration::max();
}

SteadyTime::duration StallTimeoutOf(const RunPlan& plan) {
  return plan.cluster.has_value() ? plan.cluster->stall_timeout : SteadyTime::duration::zero();
}

// What a run of a cluster begins with, and can go back to: everything initial.
Manifest Beginning(const RunState& state) {
  Manifest manifest;
  manifest.generation = state.generation;
  manifest.state = Manifest::State::kCommitted;
  manifest.position = state.position;
  manifest.early_stopping = state.early_stopping;
  return manifest;
}

int64_t EpochEdges(const RunPlan& plan) {
  int64_t edges = 0;
  for (const std::vector<int64_t>& buckets : plan.bucket_edges) {
    edges += std::accumulate(buckets.begin(), buckets.end(), int64_t{0});
  }
  return edges;
}

}  // namespace

bool RunCoordinator::PassIsComplete(const RunPlan& plan, const RunState& state) {
  const auto& edges = plan.bucket_edges[static_cast<size_t>(state.position.edge_path)];
  const size_t empty = PassAccounting(edges, plan.num_rhs, state.position).EmptyBuckets().size();
  return state.done.size() + empty == edges.size();
}

absl::StatusOr<std::unique_ptr<RunCoordinator>> RunCoordinator::Start(RunPlan plan, RunState state,
                                                                      RunStore* store,
                                                                      const Clock& clock) {
  ++state.term;
  if (!plan.cluster.has_value()) {
    state.failure.reset();
    state.sessions.clear();
    state.grants.clear();
    state.attempts.clear();
    state.parameters_ready = true;
  } else if (state.position.pass == 0 && state.done.empty() &&
             state.manifests.manifests().empty() && !plan.bucket_edges.empty()) {
    state.manifests.Put(Beginning(state));
  }
  WEFT_RETURN_IF_ERROR(store->Replace(state));
  WEFT_RETURN_IF_ERROR(store->Sync());
  std::unique_ptr<RunCoordinator> run(
      new RunCoordinator(std::move(plan), std::move(state), store, clock));
  {
    MutexLock lock(&run->mu_);
    WEFT_RETURN_IF_ERROR(run->Advance());
    if (run->AwaitsEdges()) {
      run->Event(LogEvent(run->MissingEdges()));
    } else if (run->AwaitsPush()) {
      run->Event(LogEvent(run->MissingCheckpoint()));
    }
  }
  return run;
}

RunCoordinator::RunCoordinator(RunPlan plan, RunState state, RunStore* store, const Clock& clock)
    : plan_(std::move(plan)),
      store_(store),
      clock_(clock),
      state_(std::move(state)),
      scheduler_({.num_lhs = plan_.num_lhs,
                  .num_rhs = plan_.num_rhs,
                  .types = plan_.partitioned_types,
                  .order_first = plan_.bucket_order == BucketOrder::kRandom}),
      leases_(LeaseOf(plan_), StallTimeoutOf(plan_)),
      orders_(state_.term),
      last_token_(state_.term << kTokenBits),
      counters_(clock_.SteadyNow()),
      epoch_edges_(EpochEdges(plan_)) {
  MutexLock lock(&mu_);
  const SteadyTime now = clock_.SteadyNow();
  last_manifest_ = now;
  // Revisions of another life are lower.
  servers_revision_ = grant_revision_ = sync_revision_ = view_revision_ = state_.term << 32;
  places_lost_ = true;
  for (const ServerRecord& server : state_.servers) lives_[server.info.store_id].heard = now;
  for (const auto& [id, session] : state_.sessions) leases_.Begin(id, session.grants, now);
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (manifest.ended_pass.empty()) continue;
    totals_before_ = {};
    for (const DoneBucket& bucket : manifest.ended_pass) totals_before_.Add(bucket.stats);
  }
  BeginPass();
}

bool RunCoordinator::Complete() const {
  return accounting_.has_value() && scheduler_.num_done() == scheduler_.num_buckets();
}

bool RunCoordinator::Done() const {
  if (AwaitsEdges()) return false;
  const PassPosition& position = state_.position;
  const bool epoch_begins =
      position.edge_path == 0 && position.edge_chunk == 0 && state_.done.empty();
  return position.epoch >= plan_.num_epochs ||
         (epoch_begins && ShouldStop(plan_.early_stopping, state_.early_stopping));
}

bool RunCoordinator::ManifestPending() const {
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (manifest.state == Manifest::State::kPending) return true;
  }
  return false;
}

RunPhase RunCoordinator::Phase() const {
  if (state_.failure.has_value()) return RunPhase::kFailed;
  if (state_.paused) return RunPhase::kPaused;
  if (AwaitsEdges()) return RunPhase::kPreparing;
  if (!state_.parameters_ready) {
    return state_.generation == 1 ? RunPhase::kPreparing : RunPhase::kRewinding;
  }
  if (Complete()) return RunPhase::kCutting;
  if (!Done()) return RunPhase::kRunning;
  return ManifestPending() ? RunPhase::kCutting : RunPhase::kDone;
}

absl::Status RunCoordinator::Write(const RunChange& change) {
  WEFT_RETURN_IF_ERROR(store_->Append(change));
  ApplyChange(change, &state_);
  view_changed_ = true;
  manifests_changed_ = manifests_changed_ || std::holds_alternative<ManifestBegan>(change) ||
                       std::holds_alternative<PlacesChanged>(change) ||
                       std::holds_alternative<VersionStored>(change);
  return absl::OkStatus();
}

absl::Status RunCoordinator::WriteLive(const RunChange& change) {
  if (plan_.cluster.has_value()) return Write(change);
  ApplyChange(change, &state_);
  return absl::OkStatus();
}

bool RunCoordinator::Tells(LogEvent::Level level) const {
  if (!plan_.cluster.has_value()) return false;
  return level != LogEvent::Level::kDebug || plan_.cluster->verbose;
}

void RunCoordinator::Event(LogEvent event) {
  if (Tells(event.level)) events_.push_back(std::move(event));
}

std::vector<LogEvent> RunCoordinator::TakeEvents() {
  MutexLock lock(&mu_);
  return std::exchange(events_, {});
}

RunContext RunCoordinator::context() const {
  MutexLock lock(&mu_);
  return {state_.run_id, state_.term, plan_.cluster.has_value() ? plan_.cluster->incarnation : 0,
          state_.generation};
}

bool RunCoordinator::superseded() const {
  MutexLock lock(&mu_);
  return superseded_;
}

absl::Status RunCoordinator::Check(const RunContext& caller) {
  MutexLock lock(&mu_);
  if (!caller.run_id.empty() && caller.run_id != state_.run_id) {
    return Refuse(CallRefusal::kWrongRun,
                  absl::FailedPreconditionError(
                      absl::StrCat("this is run ", state_.run_id, ", not run ", caller.run_id)));
  }
  const Incarnation mine = plan_.cluster.has_value() ? plan_.cluster->incarnation : 0;
  const bool later = caller.term > state_.term || caller.generation > state_.generation;
  const bool twin =
      caller.term == state_.term && caller.lock_server != 0 && caller.lock_server != mine;
  if (later || twin) {
    superseded_ = true;
    return absl::FailedPreconditionError(absl::StrCat(
        "this lock server is in term ", state_.term, ", generation ", state_.generation,
        " of the run; the caller has seen ", twin ? "another one in this term" : "a later one"));
  }
  if (caller.generation.has_value() && *caller.generation < state_.generation) {
    return Refuse(
        CallRefusal::kOldGeneration,
        absl::AbortedError(absl::StrCat("the run has gone back: generation ", state_.generation,
                                        " follows ", *caller.generation)));
  }
  return absl::OkStatus();
}

RunCoordinator::SessionId RunCoordinator::Register() {
  MutexLock lock(&mu_);
  const SessionId id = ++last_session_;
  // Not of a cluster, so nothing is stored that could fail.
  WriteLive(SessionBegan{id, absl::StrCat("trainer ", id)}).IgnoreError();
  leases_.Begin(id, {}, clock_.SteadyNow());
  return id;
}

absl::StatusOr<std::string> RunCoordinator::Register(const Registration& registration) {
  MutexLock lock(&mu_);
  if (registration.incarnation == 0) return absl::InvalidArgumentError("no incarnation");
  if (registration.protocol_version != kProtocolVersion ||
      registration.algorithm_version != kAlgorithmVersion) {
    return Refuse(
        CallRefusal::kOtherVersion,
        absl::FailedPreconditionError(absl::StrCat(
            "trainer ", registration.name, " has protocol version ", registration.protocol_version,
            " and algorithm version ", registration.algorithm_version, "; the run has ",
            kProtocolVersion, " and ", kAlgorithmVersion)));
  }
  if (AwaitsEdges()) return absl::UnavailableError(absl::StrCat("the run ", MissingEdges()));
  for (size_t i = 0; i < registration.data_sets.size(); ++i) {
    const EdgePath& theirs = registration.data_sets[i];
    const uint64_t ours = i < state_.edge_paths.size() ? state_.edge_paths[i].digest : 0;
    if (registration.data_sets.size() == state_.edge_paths.size() && theirs.digest == ours) {
      continue;
    }
    return Refuse(CallRefusal::kOtherVersion,
                  absl::FailedPreconditionError(absl::StrCat(
                      "trainer ", registration.name, " has other edges than the run: ", theirs.path,
                      " has id ", absl::Hex(theirs.digest), ", the run's data set ", i, " has ",
                      absl::Hex(ours))));
  }
  const auto known = state_.sessions.find(registration.incarnation);
  if (known != state_.sessions.end()) {
    leases_.Heard(registration.incarnation, clock_.SteadyNow());
    return known->second.name;
  }
  std::string name = registration.name.empty() ? "trainer" : registration.name;
  const auto taken = [&](const std::string& wanted) {
    mu_.AssertHeld();
    return std::ranges::any_of(state_.sessions,
                               [&](const auto& entry) { return entry.second.name == wanted; });
  };
  for (int suffix = 2; taken(name); ++suffix) {
    name = absl::StrCat(registration.name.empty() ? "trainer" : registration.name, "-", suffix);
  }
  WEFT_RETURN_IF_ERROR(WriteLive(SessionBegan{registration.incarnation, name}));
  leases_.Begin(registration.incarnation, {}, clock_.SteadyNow());
  Event(LogEvent("session begins", {{"trainer", name}, {"session", registration.incarnation}}));
  return name;
}

absl::StatusOr<std::vector<Token>> RunCoordinator::Heartbeat(SessionId id,
                                                             const std::vector<Token>& tokens,
                                                             uint64_t progress) {
  MutexLock lock(&mu_);
  if (!state_.sessions.contains(id)) {
    return Refuse(CallRefusal::kSessionEnded, absl::AbortedError("the session has ended"));
  }
  leases_.Beat(id, tokens, progress, clock_.SteadyNow());
  std::vector<Token> ended;
  for (const Token token : tokens) {
    const auto grant = state_.grants.find(token);
    if (grant == state_.grants.end() || grant->second.session != id) ended.push_back(token);
  }
  return ended;
}

absl::Status RunCoordinator::Tick() {
  MutexLock lock(&mu_);
  if (!plan_.cluster.has_value()) return absl::OkStatus();
  const SteadyTime now = clock_.SteadyNow();
  const SessionLeases::Due due = leases_.Look(now);
  for (const SessionId id : due.silent) {
    WEFT_RETURN_IF_ERROR(EndSession(id, SessionEnd::kSilent));
  }
  for (const SessionId id : due.stalled) {
    WEFT_RETURN_IF_ERROR(EndSession(id, SessionEnd::kStalled));
  }
  for (const Token token : due.unlisted) {
    if (!state_.grants.contains(token)) continue;
    WEFT_RETURN_IF_ERROR(Void(WithSuccessors(token), GrantEnd::kUnknown));
  }

  const ClusterOptions& options = *plan_.cluster;
  const std::vector<ServerRecord> servers = state_.servers;
  for (const ServerRecord& server : servers) {
    ServerLife& life = lives_[server.info.store_id];
    life.heard += due.late;
    if (server.retired || server.info.role != ServerRole::kPartition) continue;
    if (life.swept != garbage_ && IsLive(server)) ++sync_revision_;
    if (options.store_lost_after <= ClusterOptions::Duration::zero() ||
        now - std::max(life.heard, life.lost) < options.store_lost_after) {
      continue;
    }
    life.lost = now;  // asked again after as long
    Event(LogEvent("server silent for too long, what lies there is lost",
                   {{"address", server.info.address}}, LogEvent::Level::kWarning));
    WEFT_RETURN_IF_ERROR(Write(ServerLost{server.info.store_id, false}));
    places_lost_ = true;
  }
  if (orders_.AnyIsDue(now)) ++sync_revision_;
  absl::erase_if(pins_, [&](const auto& pin) { return pin.second.until <= now; });

  if (options.checkpoint_interval > ClusterOptions::Duration::zero() &&
      now - last_manifest_ >= options.checkpoint_interval && !ManifestPending() &&
      Phase() == RunPhase::kRunning && !state_.done.empty()) {
    last_manifest_ = now;
    Manifest manifest = MakeManifest(/*version=*/0);
    manifest.done = state_.done;
    WEFT_RETURN_IF_ERROR(Write(ManifestBegan{std::move(manifest)}));
    ++sync_revision_;
  }
  if (std::exchange(view_changed_, false)) ++view_revision_;
  return Advance();
}

RunProgress RunCoordinator::progress() const {
  MutexLock lock(&mu_);
  RunProgress progress;
  progress.position = state_.position;
  progress.num_epochs = plan_.num_epochs;
  progress.done = Done();
  progress.stopped_early = progress.done && state_.position.epoch < plan_.num_epochs;
  progress.failure = state_.failure;
  progress.early_stopping = state_.early_stopping;
  progress.epoch_edges = epoch_edges_;
  if (!accounting_.has_value()) return progress;
  progress.buckets = scheduler_.num_buckets();
  progress.buckets_done = scheduler_.num_done();
  progress.edges = accounting_->expected_edges();
  progress.edges_done = totals_.edges();
  return progress;
}

RunPhase RunCoordinator::phase() const {
  MutexLock lock(&mu_);
  return Phase();
}

RunState RunCoordinator::state() const {
  MutexLock lock(&mu_);
  return state_;
}

uint64_t RunCoordinator::grant_revision() const {
  MutexLock lock(&mu_);
  return grant_revision_;
}

uint64_t RunCoordinator::sync_revision() const {
  MutexLock lock(&mu_);
  return sync_revision_;
}

uint64_t RunCoordinator::view_revision() const {
  MutexLock lock(&mu_);
  return view_revision_;
}

}  // namespace weft
