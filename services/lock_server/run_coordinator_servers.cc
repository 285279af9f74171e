// Servers: who there is, and what they report.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {
namespace {

// Memory stores sweep as soon as garbage is such a part of what is kept.
constexpr int64_t kKeptForGarbage = 20;

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
  std::rotate(stores.begin(), stores.begin() + static_cast<long>(turn % stores.size()),
              stores.end());
  std::stable_partition(stores.begin(), stores.end(), [&](StoreId store) {
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

absl::Status RunCoordinator::CheckPlaces(const VersionInfo& info) {
  for (const ShardInfo& shard : info.shards) {
    absl::flat_hash_set<StoreId> stores;
    for (const Place& place : shard.places) {
      const ServerRecord* server = FindServer(place.store_id);
      if (MayRegister(place, server)) {
        return absl::UnavailableError(absl::StrCat("shard ", shard.shard, " is at store ",
                                                   absl::Hex(place.store_id),
                                                   ", whose process has not registered yet"));
      }
      if (server == nullptr || server->retired || server->info.role != ServerRole::kPartition) {
        continue;
      }
      // Memory stores have some of it on disk, too, and say so.
      if (place.incarnation == 0 || place.incarnation == server->info.incarnation) {
        stores.insert(place.store_id);
      }
    }
    if (stores.size() == shard.places.size() && static_cast<int>(stores.size()) >= Replicas()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "shard ", shard.shard, " is at ", stores.size(), " of the ", shard.places.size(),
        " places that are named, and should be at ", Replicas(), ": store it again"));
  }
  return absl::OkStatus();
}

bool RunCoordinator::MayRegister(const Place& place, const ServerRecord* server) {
  const bool known = server != nullptr && (place.incarnation == 0 || server->retired ||
                                           place.incarnation == server->info.incarnation);
  if (known || superseded_servers_.contains(place.incarnation)) return false;
  // A process that runs is heard within a lease. One that is not may have ended before this start.
  const SteadyTime now = clock_.SteadyNow();
  const auto asked = awaited_places_.try_emplace(place, now).first;
  if (now - asked->second < plan_.cluster->lease) return true;
  awaited_places_.erase(asked);
  return false;
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

std::string RunCoordinator::MissingServers() const {
  const bool stores = std::ranges::any_of(state_.servers, [&](const ServerRecord& server) {
    mu_.AssertHeld();
    return server.info.role == ServerRole::kPartition && IsLive(server);
  });
  if (state_.parameters_ready && stores) return "";  // as nearly always
  std::vector<std::string> missing;
  int params = 0;
  for (const ServerRecord& server : state_.servers) {
    if (server.retired) continue;
    const bool live = IsLive(server);
    const std::string named =
        absl::StrCat("the ", RoleName(server.info.role), " at ", server.info.address);
    if (server.info.role == ServerRole::kParam) ++params;
    if (!live) {
      missing.push_back(named + " is silent");
    } else if (server.info.role == ServerRole::kParam &&
               lives_.at(server.info.store_id).params.generation != state_.generation) {
      const absl::Status cause =
          orders_.CauseOf(server.info.store_id, RestoreKey(state_.generation));
      missing.push_back(absl::StrCat(named, " has no parameters yet", cause.ok() ? "" : ": ",
                                     std::string(cause.message())));
    }
  }
  const int wanted = plan_.cluster->num_param_servers;
  if (params < wanted) {
    missing.push_back(
        absl::StrCat(wanted - params, " of ", wanted, " parameter servers have not registered"));
  }
  if (!stores) missing.push_back("no partition server is there");
  return absl::StrCat("waits for servers: ", absl::StrJoin(missing, "; "));
}

std::string RunCoordinator::WaitsFor() const {
  const bool wants_to = plan_.cluster.has_value() && !state_.failure.has_value() &&
                        !state_.paused && !AwaitsEdges() && !Done();
  if (!wants_to) return "";
  return AwaitsPush() ? MissingCheckpoint() : MissingServers();
}

std::string RunCoordinator::waits_for() const {
  MutexLock lock(&mu_);
  return WaitsFor();
}

absl::StatusOr<StoreInstructions> RunCoordinator::Sync(const StoreReport& report) {
  MutexLock lock(&mu_);
  const ServerInfo& server = report.server;
  if (server.store_id == 0 || server.incarnation == 0 ||
      (server.role != ServerRole::kPartition && server.role != ServerRole::kParam)) {
    return absl::InvalidArgumentError("not a partition or parameter server with its ids");
  }
  if (AwaitsEdges() && server.role == ServerRole::kParam) {
    return absl::UnavailableError(absl::StrCat("the run ", MissingEdges()));
  }
  WEFT_RETURN_IF_ERROR(RegisterServer(server));
  WEFT_RETURN_IF_ERROR(TakeReport(report));
  WEFT_RETURN_IF_ERROR(Advance());

  StoreInstructions instructions;
  instructions.phase = Phase();
  instructions.servers = Servers();
  const ServerRecord& record = *FindServer(server.store_id);
  ServerLife& life = lives_.at(server.store_id);
  const SteadyTime now = clock_.SteadyNow();
  if (server.role == ServerRole::kParam) {
    const auto& params = instructions.servers.param_servers;
    const auto at = std::ranges::find(params, server.store_id, &ServerInfo::store_id);
    instructions.orders = orders_.Number(
        server.store_id, OrdersForParams(record, static_cast<uint32_t>(at - params.begin())), now);
    for (const Incarnation joined : report.params.joined) {
      if (!state_.sessions.contains(joined)) instructions.ended_sessions.push_back(joined);
    }
  } else {
    instructions.orders = orders_.Number(server.store_id, OrdersForPartitions(record), now);
    if (SweepIsDue(server, life)) {
      instructions.keep_list = MakeKeepList();
      life.swept = garbage_;
      life.dropped_bytes = state_.places.dropped_bytes();
      life.sweep_time = now;
    }
  }
  instructions.revision = sync_revision_;
  return instructions;
}

bool RunCoordinator::SweepIsDue(const ServerInfo& server, const ServerLife& life) const {
  if (life.swept == garbage_) return false;
  if (!life.sweep_time.has_value() ||
      clock_.SteadyNow() - *life.sweep_time >= plan_.cluster->sweep_interval) {
    return true;
  }
  // What is for nothing is in the way there.
  const int64_t garbage = state_.places.dropped_bytes() - life.dropped_bytes;
  return !server.durable && garbage >= state_.places.bytes() / kKeptForGarbage;
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
  std::erase_if(awaited_places_,
                [&](const auto& asked) { return asked.first.store_id == server.store_id; });
  Event(LogEvent(
      "server registers",
      {{"role", RoleName(server.role)}, {"address", server.address}, {"new", known == nullptr}}));
  WEFT_RETURN_IF_ERROR(Write(ServerRegistered{server}));
  orders_.ForgetFailures();
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
  return TakeResults(report);
}

}  // namespace weft
