// Servers and operators: what is reported, and what is ordered.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {
namespace {

constexpr size_t kMaxCopies = 4;  // ordered of a server at a time

std::string Key(const char* what, const ShardName& name) {
  return absl::StrCat(what, "/", name.version.key.entity_type, "/", name.version.key.partition, "/",
                      name.version.token, "/", name.shard);
}

bool LiesAt(const ShardInfo& shard, StoreId store) {
  return std::ranges::any_of(shard.places,
                             [&](const Place& place) { return place.store_id == store; });
}

}  // namespace

const ServerRecord* RunCoordinator::FindServer(StoreId store) const {
  for (const ServerRecord& server : state_.servers) {
    if (server.info.store_id == store) return &server;
  }
  return nullptr;
}

bool RunCoordinator::IsLive(const ServerRecord& server) const {
  if (server.retired) return false;
  const auto life = lives_.find(server.info.store_id);
  return life != lives_.end() && clock_.SteadyNow() - life->second.heard < plan_.cluster->lease;
}

std::vector<StoreId> RunCoordinator::StoresByRoom(uint64_t turn) const {
  // In turn, so that load is spread; those with much less room than others last.
  std::vector<StoreId> stores;
  uint64_t most = 0;
  for (const ServerRecord& server : state_.servers) {
    if (server.info.role != ServerRole::kPartition || !IsLive(server)) continue;
    stores.push_back(server.info.store_id);
    most = std::max(most, lives_.at(server.info.store_id).free_bytes);
  }
  if (stores.empty()) return stores;
  std::ranges::rotate(stores, stores.begin() + static_cast<long>(turn % stores.size()));
  std::ranges::stable_partition(stores, [&](StoreId store) {
    mu_.AssertHeld();
    return lives_.at(store).free_bytes >= most / 4;
  });
  return stores;
}

int RunCoordinator::Replicas() const {
  const int live =
      static_cast<int>(std::ranges::count_if(state_.servers, [&](const ServerRecord& server) {
        mu_.AssertHeld();
        return server.info.role == ServerRole::kPartition && IsLive(server);
      }));
  return std::max(1, std::min(plan_.cluster->partition_replicas, live));
}

bool RunCoordinator::AllParams(bool (*has)(const ParamServerState&, const RunState&)) const {
  int count = 0;
  for (const ServerRecord& server : state_.servers) {
    if (server.info.role != ServerRole::kParam) continue;
    const auto life = lives_.find(server.info.store_id);
    if (server.retired || life == lives_.end() || !life->second.reported ||
        !has(life->second.params, state_)) {
      return false;
    }
    ++count;
  }
  return count == plan_.cluster->num_param_servers;
}

ServerList RunCoordinator::Servers() const {
  ServerList list;
  list.revision = servers_revision_;
  for (const ServerRecord& server : state_.servers) {
    if (server.info.role == ServerRole::kParam) {
      list.param_servers.push_back(server.info);
    } else if (!server.retired) {
      list.partition_servers.push_back(server.info);
    }
  }
  return list;
}

ServerList RunCoordinator::servers() const {
  MutexLock lock(&mu_);
  return Servers();
}

KeepList RunCoordinator::MakeKeepList() const {
  KeepList list;
  list.high_water = last_token_;
  list.keep = state_.versions.Roots();
  for (const PartitionVersion& version : state_.manifests.HeldVersions()) {
    list.keep.push_back(version);
  }
  for (const auto& [token, grant] : state_.grants) {
    for (const GrantRecord::Base& base : grant.bases) {
      list.keep.push_back({base.key, token});
      if (base.token != kInitialToken) list.keep.push_back({base.key, base.token});
    }
  }
  std::ranges::sort(list.keep);
  const auto repeated = std::ranges::unique(list.keep);
  list.keep.erase(repeated.begin(), repeated.end());
  return list;
}

KeepList RunCoordinator::keep_list() const {
  MutexLock lock(&mu_);
  return MakeKeepList();
}

absl::StatusOr<StoreInstructions> RunCoordinator::Sync(const StoreReport& report) {
  MutexLock lock(&mu_);
  const ServerInfo& server = report.server;
  if (server.store_id == 0 || server.incarnation == 0 ||
      (server.role != ServerRole::kPartition && server.role != ServerRole::kParam)) {
    return absl::InvalidArgumentError("not a partition or parameter server with its ids");
  }
  WEFT_RETURN_IF_ERROR(RegisterServer(server));
  WEFT_RETURN_IF_ERROR(TakeReport(report));
  WEFT_RETURN_IF_ERROR(Advance());

  StoreInstructions instructions;
  instructions.phase = Phase();
  instructions.servers = Servers();
  const ServerRecord& record = *FindServer(server.store_id);
  ServerLife& life = lives_.at(server.store_id);
  if (server.role == ServerRole::kParam) {
    const auto& params = instructions.servers.param_servers;
    const auto at = std::ranges::find(params, server.store_id, &ServerInfo::store_id);
    instructions.orders = orders_.Number(
        server.store_id, OrdersForParams(record, static_cast<uint32_t>(at - params.begin())));
    for (const Incarnation joined : report.params.joined) {
      if (!state_.sessions.contains(joined)) instructions.ended_sessions.push_back(joined);
    }
  } else {
    instructions.orders = orders_.Number(server.store_id, OrdersForPartitions(record));
    const SteadyTime now = clock_.SteadyNow();
    const bool due =
        !life.sweep_time.has_value() || now - *life.sweep_time >= plan_.cluster->sweep_interval;
    if (life.swept != garbage_ && due) {
      instructions.keep_list = MakeKeepList();
      life.swept = garbage_;
      life.sweep_time = now;
    }
  }
  instructions.revision = sync_revision_;
  return instructions;
}

absl::Status RunCoordinator::RegisterServer(const ServerInfo& server) {
  if (superseded_servers_.contains(server.incarnation)) {
    return absl::AbortedError(absl::StrCat("a newer process of the ", RoleName(server.role), " at ",
                                           server.address, " has registered"));
  }
  const ServerRecord* known = FindServer(server.store_id);
  if (known == nullptr && server.role == ServerRole::kParam) {
    const auto taken = std::ranges::count_if(state_.servers, [](const ServerRecord& other) {
      return other.info.role == ServerRole::kParam && !other.retired;
    });
    if (taken >= plan_.cluster->num_param_servers) {
      return absl::FailedPreconditionError(absl::StrCat("the run has its ", taken,
                                                        " parameter servers; the one at ",
                                                        server.address, " is another one"));
    }
  }
  if (known != nullptr && (known->retired || known->info.role != server.role)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the ", RoleName(server.role), " at ", server.address, " is ",
        known->retired ? "retired: empty its folder and start it anew" : "known in another role"));
  }
  lives_[server.store_id].heard = clock_.SteadyNow();
  if (known != nullptr && known->info == server) return absl::OkStatus();

  if (known != nullptr && known->info.incarnation != server.incarnation) {
    superseded_servers_.insert(known->info.incarnation);
    lives_[server.store_id] = ServerLife{};
    lives_[server.store_id].heard = clock_.SteadyNow();
    places_lost_ = true;
  }
  Event(absl::StrCat("server registers: role=", RoleName(server.role), " address=", server.address,
                     " new=", known == nullptr));
  WEFT_RETURN_IF_ERROR(Write(ServerRegistered{server}));
  ++servers_revision_;
  ++sync_revision_;
  ++grant_revision_;
  return absl::OkStatus();
}

absl::Status RunCoordinator::TakeReport(const StoreReport& report) {
  const ServerInfo& server = report.server;
  ServerLife& life = lives_.at(server.store_id);
  life.free_bytes = report.free_bytes;
  // What a process has only grows; what says otherwise was said earlier, and came late.
  const auto progress = [](const ParamServerState& params) {
    return std::pair(params.generation, params.first_open_pass);
  };
  if (life.reported && progress(report.params) < progress(life.params)) {
    life.params.joined = report.params.joined;
  } else {
    life.params = report.params;
  }
  life.reported = true;
  if (server.role == ServerRole::kParam) {
    if (life.params.generation > state_.generation) {
      superseded_ = true;
      return absl::FailedPreconditionError(absl::StrCat(
          "the parameter server at ", server.address, " is in generation ", life.params.generation,
          ", this lock server's run in ", state_.generation, ": a later life of the run exists"));
    }
    if (state_.parameters_ready && life.params.generation < state_.generation &&
        !state_.failure.has_value()) {
      return RewindToNewest(
          absl::StrCat("the parameter server at ", server.address, " has lost its content"));
    }
  }
  PlacesChanged persisted;
  for (const ShardName& name : report.persisted) {
    const PlaceTable::Shards* shards = state_.places.Find(name.version);
    if (shards == nullptr || name.shard >= shards->size()) continue;
    if (LiesAt((*shards)[name.shard], server.store_id)) {
      persisted.changes.push_back({name, {server.store_id, 0}, false});
    }
  }
  if (!persisted.changes.empty()) WEFT_RETURN_IF_ERROR(Write(persisted));
  for (const OrderResult& result : report.results) {
    WEFT_RETURN_IF_ERROR(TakeResult(server, result));
  }
  return absl::OkStatus();
}

absl::Status RunCoordinator::TakeResult(const ServerInfo& server, const OrderResult& result) {
  const std::optional<StoreOrder> order = orders_.Take(server.store_id, result.order_id);
  if (!order.has_value()) return absl::OkStatus();
  if (const auto* verify = std::get_if<VerifyShard>(&*order)) {
    if (!result.status.ok() && !absl::IsNotFound(result.status) &&
        !absl::IsDataLoss(result.status)) {
      return absl::OkStatus();  // not an answer; asked again
    }
    const auto suspects = suspects_.find(verify->shard);
    if (suspects != suspects_.end()) {
      suspects->second.erase(server.store_id);
      if (suspects->second.empty()) suspects_.erase(suspects);
    }
    if (result.status.ok()) return absl::OkStatus();
    Event(absl::StrCat("lost at ", server.address, ": ", Key("shard", verify->shard), ": ",
                       std::string(result.status.message())));
    places_lost_ = true;
    return Write(PlacesChanged{{{verify->shard, {server.store_id, 0}, true}}});
  }
  if (!result.status.ok()) {
    Event(absl::StrCat("an order failed at ", server.address, ": ",
                       std::string(result.status.message())));
    return absl::OkStatus();
  }
  if (!result.stored.has_value()) return absl::OkStatus();
  if (const auto* snapshot = std::get_if<StoreSnapshot>(&*order)) {
    const bool asked =
        result.stored->version == snapshot->version && state_.manifests.Holds(snapshot->version);
    if (!asked || !CheckShards(*result.stored).ok() || !CheckPlaces(*result.stored).ok()) {
      return absl::OkStatus();  // ordered again
    }
    ++sync_revision_;  // memory stores are to persist it
    return Write(VersionStored{*result.stored});
  }
  if (const auto* copy = std::get_if<CopyShard>(&*order)) {
    PlacesChanged copied;
    for (const ShardInfo& shard : result.stored->shards) {
      for (const Place& place : shard.places) {
        const bool there =
            place.incarnation == 0 ? server.durable : place.incarnation == server.incarnation;
        if (shard.shard != copy->shard.shard || place.store_id != server.store_id || !there) {
          continue;
        }
        copied.changes.push_back({{copy->version, shard.shard}, place, false});
      }
    }
    if (!copied.changes.empty()) return Write(copied);
  }
  return absl::OkStatus();
}

std::vector<OrderBook::Wanted> RunCoordinator::OrdersForParams(const ServerRecord& server,
                                                               uint32_t index) const {
  std::vector<OrderBook::Wanted> orders;
  const ParamServerState& params = lives_.at(server.info.store_id).params;
  const Generation generation = state_.generation;
  if (params.generation != generation) {
    const bool all =
        Servers().param_servers.size() == static_cast<size_t>(plan_.cluster->num_param_servers);
    if (state_.failure.has_value() || !all) return orders;
    RestoreParameters restore;
    restore.generation = generation;
    restore.first_open_pass = state_.position.pass;
    restore.server_index = index;
    restore.num_servers = static_cast<uint32_t>(plan_.cluster->num_param_servers);
    const Manifest* origin = state_.manifests.Find(state_.origin);
    for (const PartitionVersion& version :
         origin != nullptr ? origin->versions : std::vector<PartitionVersion>()) {
      if (version.key.entity_type == kSnapshotType) AddPlaces(version, &restore.snapshots);
    }
    orders.push_back({absl::StrCat("restore/", generation), std::move(restore)});
    return orders;
  }
  const int64_t next_pass = state_.position.pass + 1;
  if (state_.parameters_ready && Complete() && params.first_open_pass < next_pass) {
    orders.push_back(
        {absl::StrCat("cut/", generation, "/", next_pass), CutParameters{generation, next_pass}});
  }
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    const PartitionVersion version = {{kSnapshotType, static_cast<PartitionId>(index)}, token};
    if (manifest.state != Manifest::State::kPending || state_.places.IsReadable(version)) continue;
    StoreSnapshot snapshot;
    snapshot.version = version;
    if (manifest.version > 0) snapshot.first_open_pass = manifest.position.pass;
    snapshot.store_at = StoresByRoom(token + index);
    snapshot.replicas = Replicas();
    if (snapshot.store_at.empty()) continue;
    orders.push_back({absl::StrCat("snapshot/", token), std::move(snapshot)});
  }
  return orders;
}

std::vector<OrderBook::Wanted> RunCoordinator::OrdersForPartitions(
    const ServerRecord& server) const {
  std::vector<OrderBook::Wanted> orders;
  const StoreId store = server.info.store_id;
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (manifest.state != Manifest::State::kPending || server.info.durable) continue;
    PersistShards persist;
    for (const PartitionVersion& version : manifest.versions) {
      const PlaceTable::Shards* shards = state_.places.Find(version);
      if (shards == nullptr) continue;
      for (const ShardInfo& shard : *shards) {
        const bool passing = std::ranges::any_of(shard.places, [&](const Place& place) {
          return place.store_id == store && place.incarnation != 0;
        });
        if (passing) persist.shards.push_back({version, shard.shard});
      }
    }
    if (persist.shards.empty()) continue;
    // Another set of shards (a snapshot came) is another order.
    orders.push_back(
        {absl::StrCat("persist/", token, "/", persist.shards.size()), std::move(persist)});
  }
  for (const auto& [shard, stores] : suspects_) {
    if (stores.contains(store)) orders.push_back({Key("verify", shard), VerifyShard{shard}});
  }
  const auto replicas = static_cast<size_t>(Replicas());
  if (replicas < 2) return orders;
  size_t copies = 0;
  for (const auto& [version, shards] : state_.places.versions()) {
    for (const ShardInfo& shard : shards) {
      if (shard.places.empty() || shard.places.size() >= replicas || copies >= kMaxCopies) continue;
      // The first one in turn that does not have it.
      const std::vector<StoreId> turn = StoresByRoom(version.token + shard.shard);
      const auto target =
          std::ranges::find_if(turn, [&](StoreId candidate) { return !LiesAt(shard, candidate); });
      if (target == turn.end() || *target != store) continue;
      orders.push_back({Key("copy", {version, shard.shard}), CopyShard{version, shard}});
      ++copies;
    }
  }
  return orders;
}

// --- Operators ---

absl::Status RunCoordinator::Pause(bool paused) {
  MutexLock lock(&mu_);
  if (state_.paused == paused) return absl::OkStatus();
  Event(paused ? "paused" : "goes on");
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
  Event(absl::StrCat("server retired: address=", server->info.address));
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
  if (!state_.parameters_ready && plan_.cluster.has_value()) {
    view.reason = absl::StrCat("waits for ", plan_.cluster->num_param_servers,
                               " parameter servers to be ready");
  } else if (view.phase == RunPhase::kRunning && view.servers.partition_servers.empty()) {
    view.reason = "waits for a partition server";
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
  view.buckets.assign(static_cast<size_t>(scheduler_.num_buckets()), BucketStatus::kDone);
  const auto at = [&](Bucket b) -> BucketStatus& {
    return view.buckets[static_cast<size_t>(b.lhs) * static_cast<size_t>(plan_.num_rhs) +
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
  return view;
}

}  // namespace weft
