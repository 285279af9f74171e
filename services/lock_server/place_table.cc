#include "services/lock_server/place_table.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

// What `places` places of the shard count for.
int64_t BytesAt(size_t places, const PartitionVersion& version, const ShardInfo& shard) {
  if (version.key.entity_type == kEdgesType) return 0;
  return shard.size_bytes * static_cast<int64_t>(places);
}

int64_t BytesOf(const PartitionVersion& version, const PlaceTable::Shards& shards) {
  int64_t bytes = 0;
  for (const ShardInfo& shard : shards) bytes += BytesAt(shard.places.size(), version, shard);
  return bytes;
}

}  // namespace

void PlaceTable::Drop(const PartitionVersion& version, const Shards& shards) {
  const int64_t bytes = BytesOf(version, shards);
  bytes_ -= bytes;
  dropped_bytes_ += bytes;
}

template <typename Gone>
void PlaceTable::RemovePlaces(const PartitionVersion& version, ShardInfo* shard, Gone gone) {
  bytes_ -= BytesAt(std::erase_if(shard->places, gone), version, *shard);
}

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
  Shards& entry = versions_[version];
  Drop(version, entry);
  entry = std::move(shards);
  bytes_ += BytesOf(version, entry);
}

void PlaceTable::Erase(const PartitionVersion& version) {
  const auto found = versions_.find(version);
  if (found == versions_.end()) return;
  Drop(version, found->second);
  versions_.erase(found);
}

void PlaceTable::Retain(const std::function<bool(const PartitionVersion&)>& keep) {
  absl::erase_if(versions_, [&](const auto& entry) {
    if (keep(entry.first)) return false;
    Drop(entry.first, entry.second);
    return true;
  });
}

bool PlaceTable::AddPlace(const ShardName& name, const Place& place) {
  const auto found = versions_.find(name.version);
  if (found == versions_.end()) return false;
  for (ShardInfo& shard : found->second) {
    if (shard.shard != name.shard) continue;
    RemovePlaces(name.version, &shard,
                 [&](const Place& p) { return p.store_id == place.store_id; });
    shard.places.push_back(place);
    bytes_ += BytesAt(1, name.version, shard);
    return true;
  }
  return false;
}

void PlaceTable::RemovePlace(const ShardName& name, StoreId store) {
  const auto found = versions_.find(name.version);
  if (found == versions_.end()) return;
  for (ShardInfo& shard : found->second) {
    if (shard.shard != name.shard) continue;
    RemovePlaces(name.version, &shard, [&](const Place& place) { return place.store_id == store; });
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
      RemovePlaces(version, &shard, [&](const Place& place) {
        return place.store_id == store && place.incarnation != 0 &&
               place.incarnation != incarnation;
      });
    }
  }
}

void PlaceTable::RemoveStore(StoreId store) {
  for (auto& [version, shards] : versions_) {
    for (ShardInfo& shard : shards) {
      RemovePlaces(version, &shard, [&](const Place& place) { return place.store_id == store; });
    }
  }
}

}  // namespace weft
