#include "services/lock_server/place_table.h"

#include <algorithm>
#include <utility>

namespace weft {

const PlaceTable::Shards* PlaceTable::Find(const PartitionVersion& version) const {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : &found->second;
}

bool PlaceTable::IsReadable(const PartitionVersion& version) const {
  const Shards* shards = Find(version);
  return shards != nullptr &&
         std::ranges::all_of(*shards, [](const ShardInfo& s) { return !s.places.empty(); });
}

bool PlaceTable::IsDurable(const PartitionVersion& version) const {
  const Shards* shards = Find(version);
  return shards != nullptr && std::ranges::all_of(*shards, [](const ShardInfo& shard) {
           return std::ranges::any_of(shard.places,
                                      [](const Place& place) { return place.incarnation == 0; });
         });
}

void PlaceTable::Set(const PartitionVersion& version, Shards shards) {
  versions_.insert_or_assign(version, std::move(shards));
}

void PlaceTable::Erase(const PartitionVersion& version) { versions_.erase(version); }

void PlaceTable::Retain(const std::function<bool(const PartitionVersion&)>& keep) {
  absl::erase_if(versions_, [&](const auto& entry) { return !keep(entry.first); });
}

bool PlaceTable::AddPlace(const ShardName& name, const Place& place) {
  const auto found = versions_.find(name.version);
  if (found == versions_.end()) return false;
  for (ShardInfo& shard : found->second) {
    if (shard.shard != name.shard) continue;
    std::erase_if(shard.places, [&](const Place& p) { return p.store_id == place.store_id; });
    shard.places.push_back(place);
    return true;
  }
  return false;
}

void PlaceTable::RemovePlace(const ShardName& name, StoreId store) {
  const auto found = versions_.find(name.version);
  if (found == versions_.end()) return;
  for (ShardInfo& shard : found->second) {
    if (shard.shard != name.shard) continue;
    std::erase_if(shard.places, [&](const Place& place) { return place.store_id == store; });
  }
}

std::vector<ShardName> PlaceTable::PassingAt(StoreId store) const {
  std::vector<ShardName> names;
  for (const auto& [version, shards] : versions_) {
    for (const ShardInfo& shard : shards) {
      const bool passing = std::ranges::any_of(shard.places, [&](const Place& place) {
        return place.store_id == store && place.incarnation != 0;
      });
      if (passing) names.push_back({version, shard.shard});
    }
  }
  std::ranges::sort(names);
  return names;
}

void PlaceTable::RemovePassing(StoreId store, Incarnation incarnation) {
  for (auto& [version, shards] : versions_) {
    for (ShardInfo& shard : shards) {
      std::erase_if(shard.places, [&](const Place& place) {
        return place.store_id == store && place.incarnation != 0 &&
               place.incarnation != incarnation;
      });
    }
  }
}

void PlaceTable::RemoveStore(StoreId store) {
  for (auto& [version, shards] : versions_) {
    for (ShardInfo& shard : shards) {
      std::erase_if(shard.places, [&](const Place& place) { return place.store_id == store; });
    }
  }
}

}  // namespace weft
