// What servers are ordered to do, and what became of it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {
namespace {

constexpr size_t kMaxCopies = 4;       // ordered of a server at a time
constexpr size_t kManifestPlaces = 2;  // of a manifest's bytes, if there are so many servers
constexpr size_t kMaxManifestBytes = size_t{3} << 20;  // they travel in one message

std::string Key(const char* what, const ShardName& name) {
  return absl::StrCat(what, "/", name.version.key.entity_type, "/", name.version.key.partition, "/",
                      name.version.token, "/", name.shard);
}

bool LiesAt(const ShardInfo& shard, StoreId store) {
  return std::ranges::any_of(shard.places,
                             [&](const Place& place) { return place.store_id == store; });
}

}  // namespace

KeepList RunCoordinator::MakeKeepList() const {
  KeepList list;
  list.high_water = last_token_;
  list.keep = state_.versions.Roots();
  for (const PartitionVersion& version : state_.manifests.HeldVersions()) {
    list.keep.push_back(version);
  }
  for (const auto& [version, shards] : state_.places.versions()) {
    if (HoldsManifestBlob(state_, version)) list.keep.push_back(version);
  }
  for (const auto& [token, grant] : state_.grants) {
    for (const GrantRecord::Base& base : grant.bases) {
      list.keep.push_back({base.key, token});
      if (base.token != kInitialToken) list.keep.push_back({base.key, base.token});
    }
  }
  if (state_.edge_import.token != kInitialToken) {
    list.keep_tokens.push_back(state_.edge_import.token);
  }
  if (state_.push.token != kInitialToken) list.keep_tokens.push_back(state_.push.token);
  std::ranges::sort(list.keep);
  list.keep.erase(std::unique(list.keep.begin(), list.keep.end()), list.keep.end());
  return list;
}

KeepList RunCoordinator::keep_list() const {
  MutexLock lock(&mu_);
  return MakeKeepList();
}

std::string RunCoordinator::RestoreKey(Generation generation) {
  return absl::StrCat("restore/", generation);
}

std::vector<OrderBook::Wanted> RunCoordinator::OrdersForParams(const ServerRecord& server,
                                                               uint32_t index) const {
  std::vector<OrderBook::Wanted> orders;
  const ParamServerState& params = lives_.at(server.info.store_id).params;
  const Generation generation = state_.generation;
  if (params.generation != generation) {
    const bool all =
        Servers().param_servers.size() == static_cast<size_t>(plan_.cluster->num_param_servers);
    if (state_.failure.has_value() || !all || AwaitsPush()) return orders;
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
    orders.push_back({RestoreKey(generation), std::move(restore)});
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

std::vector<OrderBook::Wanted> RunCoordinator::OrdersForPartitions(const ServerRecord& server) {
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
  if (push_is_whole_ && state_.push.token != kInitialToken && !server.info.durable) {
    PersistShards persist;
    for (const ShardName& shard : state_.places.PassingAt(store)) {
      if (shard.version.token == state_.push.token) persist.shards.push_back(shard);
    }
    if (!persist.shards.empty()) {
      orders.push_back({absl::StrCat("persist/", state_.push.token, "/", persist.shards.size()),
                        std::move(persist)});
    }
  }
  for (const auto& [shard, stores] : suspects_) {
    if (stores.contains(store)) orders.push_back({Key("verify", shard), VerifyShard{shard}});
  }
  AddManifestOrders(store, &orders);
  const auto replicas = static_cast<size_t>(Replicas());
  if (replicas < 2) return orders;
  std::vector<CopyShard> copies;
  for (const auto& [version, shards] : state_.places.versions()) {
    if (version.key.entity_type == kManifestType) continue;
    for (const ShardInfo& shard : shards) {
      if (shard.places.empty() || shard.places.size() >= replicas) continue;
      // The first one in turn that does not have it.
      const std::vector<StoreId> turn = StoresByRoom(version.token + shard.shard);
      const auto target =
          std::ranges::find_if(turn, [&](StoreId candidate) { return !LiesAt(shard, candidate); });
      if (target != turn.end() && *target == store) copies.push_back({version, shard});
    }
  }
  // In an order of their own, not the table's: the same ones are wanted until they are done.
  std::ranges::sort(
      copies, {}, [](const CopyShard& copy) { return std::pair(copy.version, copy.shard.shard); });
  const SteadyTime now = clock_.SteadyNow();
  size_t ordered = 0;
  for (CopyShard& copy : copies) {
    if (ordered == kMaxCopies) break;
    std::string key = Key("copy", {copy.version, copy.shard.shard});
    if (orders_.IsHeldBack(store, key, now)) continue;  // others take its turn
    orders.push_back({std::move(key), std::move(copy)});
    ++ordered;
  }
  return orders;
}

void RunCoordinator::AddManifestOrders(StoreId store, std::vector<OrderBook::Wanted>* orders) {
  if (plan_.cluster->encode_state == nullptr) return;
  const auto& manifests = state_.manifests.manifests();
  // The newest first, and one at a time: an answer holds no more.
  for (auto entry = manifests.rbegin(); entry != manifests.rend(); ++entry) {
    const auto& [token, manifest] = *entry;
    if (token == kInitialToken || manifest.state != Manifest::State::kCommitted) continue;
    // What it is written as differs from one life to the next, so its name does, too.
    const PartitionVersion version = {{kManifestType, static_cast<PartitionId>(state_.term)},
                                      token};
    const PlaceTable::Shards* shards = state_.places.Find(version);
    const size_t there = shards == nullptr ? 0 : shards->front().places.size();
    if (there >= kManifestPlaces) continue;
    const std::vector<StoreId> turn = StoresByRoom(token);
    const auto target = std::ranges::find_if(turn, [&](StoreId candidate) {
      return shards == nullptr || !LiesAt(shards->front(), candidate);
    });
    if (target == turn.end() || *target != store) continue;
    if (there > 0) {
      orders->push_back({Key("copy", {version, 0}), CopyShard{version, shards->front()}});
      continue;
    }
    const std::string& bytes = BytesOf(manifest);
    if (bytes.empty()) continue;
    orders->push_back({Key("manifest", {version, 0}), StoreManifest{version, bytes}});
    return;
  }
}

const std::string& RunCoordinator::BytesOf(const Manifest& manifest) {
  const auto [entry, is_new] = manifest_bytes_.try_emplace(manifest.token);
  std::string& bytes = entry->second;
  if (!is_new) return bytes;
  RunState state = state_;
  RewindTo(manifest, &state);
  bytes = plan_.cluster->encode_state(state);
  if (bytes.size() > kMaxManifestBytes) {
    // A run can do without the statistics of passes that are over.
    for (const auto& [token, kept] : state_.manifests.manifests()) {
      if (Manifest* const copy = state.manifests.Find(token)) copy->ended_pass.clear();
    }
    bytes = plan_.cluster->encode_state(state);
  }
  if (bytes.size() > kMaxManifestBytes) {
    Event(LogEvent("manifest is too large to be kept at partition servers",
                   {{"token", manifest.token}, {"bytes", bytes.size()}},
                   LogEvent::Level::kWarning));
    bytes.clear();
  }
  return bytes;
}

absl::Status RunCoordinator::TakeResults(const StoreReport& report) {
  PlacesChanged persisted;
  for (const ShardName& name : report.persisted) {
    const PlaceTable::Shards* shards = state_.places.Find(name.version);
    if (shards == nullptr || name.shard >= shards->size()) continue;
    if (LiesAt((*shards)[name.shard], report.server.store_id)) {
      persisted.changes.push_back({name, {report.server.store_id, 0}, false});
    }
  }
  if (!persisted.changes.empty()) WEFT_RETURN_IF_ERROR(Write(persisted));
  for (const OrderResult& result : report.results) {
    WEFT_RETURN_IF_ERROR(TakeResult(report.server, result));
  }
  return absl::OkStatus();
}

void RunCoordinator::Suspect(const VersionInfo& version) {
  for (const ShardInfo& shard : version.shards) {
    for (const Place& place : shard.places) {
      suspects_[{version.version, shard.shard}].insert(place.store_id);
    }
  }
  ++sync_revision_;
}

absl::Status RunCoordinator::TakeResult(const ServerInfo& server, const OrderResult& result) {
  const std::optional<OrderBook::Wanted> taken = orders_.Take(server.store_id, result.order_id);
  if (!taken.has_value()) return absl::OkStatus();
  const StoreOrder* const order = &taken->order;
  if (const auto* verify = std::get_if<VerifyShard>(order)) {
    if (!result.status.ok() && !absl::IsNotFound(result.status) &&
        !absl::IsDataLoss(result.status)) {
      orders_.HoldBack(server.store_id, taken->key, result.status, clock_.SteadyNow());
      return absl::OkStatus();  // not an answer; asked again
    }
    const auto suspects = suspects_.find(verify->shard);
    if (suspects != suspects_.end()) {
      suspects->second.erase(server.store_id);
      if (suspects->second.empty()) suspects_.erase(suspects);
    }
    if (result.status.ok()) return absl::OkStatus();
    Event(LogEvent("lost",
                   {{"address", server.address},
                    {"shard", Key("shard", verify->shard)},
                    {"cause", result.status.message()}},
                   LogEvent::Level::kWarning));
    places_lost_ = true;
    return Write(PlacesChanged{{{verify->shard, {server.store_id, 0}, true}}});
  }
  if (!result.status.ok()) {
    Event(LogEvent("an order failed",
                   {{"address", server.address}, {"cause", result.status.message()}},
                   LogEvent::Level::kWarning));
    orders_.HoldBack(server.store_id, taken->key, result.status, clock_.SteadyNow());
    if (!absl::IsNotFound(result.status) && !absl::IsDataLoss(result.status)) {
      return absl::OkStatus();
    }
    // What could not be read is looked at where it lies: it may be lost there.
    if (const auto* restore = std::get_if<RestoreParameters>(order)) {
      for (const VersionInfo& snapshot : restore->snapshots) Suspect(snapshot);
    } else if (const auto* copy = std::get_if<CopyShard>(order)) {
      Suspect({copy->version, {copy->shard}});
    }
    return absl::OkStatus();
  }
  if (!result.stored.has_value()) return absl::OkStatus();
  if (const auto* snapshot = std::get_if<StoreSnapshot>(order)) {
    const bool asked =
        result.stored->version == snapshot->version && state_.manifests.Holds(snapshot->version);
    if (!asked || !CheckShards(*result.stored).ok() || !CheckPlaces(*result.stored).ok()) {
      orders_.HoldBack(server.store_id, taken->key,
                       absl::InternalError("stored otherwise than ordered"), clock_.SteadyNow());
      return absl::OkStatus();  // ordered again
    }
    ++sync_revision_;  // memory stores are to persist it
    return Write(VersionStored{*result.stored});
  }
  if (const auto* manifest = std::get_if<StoreManifest>(order)) {
    const VersionInfo& stored = *result.stored;
    if (stored.version != manifest->version || !HoldsManifestBlob(state_, stored.version) ||
        stored.shards.size() != 1 || !LiesAt(stored.shards.front(), server.store_id)) {
      return absl::OkStatus();  // ordered again, if it is still wanted
    }
    ++sync_revision_;  // another server is to have it, too
    return Write(VersionStored{stored});
  }
  if (const auto* copy = std::get_if<CopyShard>(order)) {
    PlacesChanged copied;
    for (const ShardInfo& shard : result.stored->shards) {
      for (const Place& place : shard.places) {
        const bool there = place.incarnation == 0 || place.incarnation == server.incarnation;
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

}  // namespace weft
