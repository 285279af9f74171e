#include "services/common/place_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

std::string Name(const PartitionVersion& version) {
  return absl::StrCat("version ", version.token, " of partition (", version.key.entity_type, ", ",
                      version.key.partition, ")");
}

}  // namespace

void PlaceDirectory::SetServers(ServerList servers) {
  MutexLock lock(&mu_);
  if (servers.revision >= servers_.revision) servers_ = std::move(servers);
}

void PlaceDirectory::AddGrant(Token token, const std::vector<VersionInfo>& places,
                              std::vector<StoreId> store_at, int replicas,
                              std::vector<PartitionVersion> bases) {
  MutexLock lock(&mu_);
  GrantEntry& grant = grants_[token];
  grant.bases = std::move(bases);
  grant.store_at = std::move(store_at);
  grant.replicas = replicas;
  for (const VersionInfo& version : places) {
    // Without shards: the trainer is about to store it, and will say where.
    if (!version.shards.empty()) grant.places[version.version] = version;
  }
  while (grants_.size() > kRememberedGrants && !grants_.begin()->second.live) {
    grants_.erase(grants_.begin());
  }
}

std::vector<VersionInfo> PlaceDirectory::Stored(Token token) const {
  MutexLock lock(&mu_);
  std::vector<VersionInfo> stored;
  const auto grant = grants_.find(token);
  if (grant == grants_.end()) return stored;
  for (const auto& [key, version] : grant->second.stored) stored.push_back(version);
  return stored;
}

void PlaceDirectory::DropGrant(Token token) {
  MutexLock lock(&mu_);
  const auto grant = grants_.find(token);
  if (grant != grants_.end()) grant->second.live = false;
}

void PlaceDirectory::Clear() {
  MutexLock lock(&mu_);
  grants_.clear();
}

const VersionInfo* PlaceDirectory::FindPlaces(const PartitionVersion& version) const {
  const auto own = grants_.find(version.token);
  if (own != grants_.end()) {
    const auto stored = own->second.stored.find(version.key);
    if (stored != own->second.stored.end()) return &stored->second;
  }
  // The newest first: places change.
  for (auto grant = grants_.rbegin(); grant != grants_.rend(); ++grant) {
    const auto found = grant->second.places.find(version);
    if (found != grant->second.places.end()) return &found->second;
  }
  return nullptr;
}

VersionInfo* PlaceDirectory::FindMutablePlaces(const PartitionVersion& version) {
  return const_cast<VersionInfo*>(FindPlaces(version));
}

absl::StatusOr<VersionInfo> PlaceDirectory::Find(const PartitionVersion& version) const {
  MutexLock lock(&mu_);
  if (const VersionInfo* found = FindPlaces(version)) return *found;
  WEFT_RETURN_IF_ERROR(CheckGrants());
  return absl::NotFoundError(absl::StrCat(Name(version), ": the lock server named no place"));
}

absl::Status PlaceDirectory::CheckGrants() const {
  if (!grants_.empty()) return absl::OkStatus();
  return absl::AbortedError("there is no grant: the session has ended");
}

absl::Status PlaceDirectory::CheckSession() const {
  MutexLock lock(&mu_);
  return CheckGrants();
}

std::optional<Token> PlaceDirectory::GrantFrom(const PartitionVersion& version) const {
  MutexLock lock(&mu_);
  for (const auto& [token, grant] : grants_) {
    if (grant.live && std::ranges::find(grant.bases, version) != grant.bases.end()) return token;
  }
  return std::nullopt;
}

void PlaceDirectory::SetPlaces(const PartitionVersion& version, uint32_t shard,
                               std::vector<Place> places) {
  MutexLock lock(&mu_);
  VersionInfo* const found = FindMutablePlaces(version);
  if (found == nullptr) return;
  for (ShardInfo& info : found->shards) {
    if (info.shard == shard) info.places = places;
  }
}

absl::StatusOr<PlaceDirectory::StorePlan> PlaceDirectory::PlanFor(Token token) const {
  MutexLock lock(&mu_);
  const auto grant = grants_.find(token);
  if (grant == grants_.end() || !grant->second.live) {
    return absl::AbortedError(absl::StrCat("grant ", token, " has ended"));
  }
  StorePlan plan;
  plan.replicas = grant->second.replicas;
  const std::vector<StoreId>& order = grant->second.store_at;
  for (const StoreId store : order) {
    for (const ServerInfo& server : servers_.partition_servers) {
      if (server.store_id == store) plan.servers.push_back(server);
    }
  }
  // Servers that came since: any place is valid.
  for (const ServerInfo& server : servers_.partition_servers) {
    if (std::ranges::find(order, server.store_id) == order.end()) plan.servers.push_back(server);
  }
  if (plan.servers.empty()) return absl::UnavailableError("no partition server is registered");
  return plan;
}

void PlaceDirectory::SetStored(VersionInfo version) {
  MutexLock lock(&mu_);
  const auto grant = grants_.find(version.version.token);
  if (grant == grants_.end()) return;
  grant->second.stored[version.version.key] = std::move(version);
}

std::optional<ServerInfo> PlaceDirectory::Server(StoreId store) const {
  MutexLock lock(&mu_);
  for (const ServerInfo& server : servers_.partition_servers) {
    if (server.store_id == store) return server;
  }
  return std::nullopt;
}

ServerList PlaceDirectory::servers() const {
  MutexLock lock(&mu_);
  return servers_;
}

}  // namespace weft
