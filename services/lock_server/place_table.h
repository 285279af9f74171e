// PlaceTable says of what shards each version is made, and at which stores each of them lies.
//
// A version that is not in the table is not stored (or, on one machine, lies where it is looked
// for). Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/cluster_types.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"

namespace weft {

class PlaceTable {
 public:
  using Shards = std::vector<ShardInfo>;

  // nullptr: not in the table.
  const Shards* Find(const PartitionVersion& version) const;
  // Every shard lies somewhere.
  bool IsReadable(const PartitionVersion& version) const;
  // Every shard lies where it survives its server's process.
  bool IsDurable(const PartitionVersion& version) const;

  void Set(const PartitionVersion& version, Shards shards);
  void Erase(const PartitionVersion& version);
  // Keeps those only of which `keep` says so.
  void Retain(const std::function<bool(const PartitionVersion&)>& keep);

  // The shard lies at this place, in place of another one at the same store. False when there is no
  // such shard.
  bool AddPlace(const ShardName& shard, const Place& place);
  void RemovePlace(const ShardName& shard, StoreId store);

  // The shards at `store` that would end with its process, by version, then shard.
  std::vector<ShardName> PassingAt(StoreId store) const;
  // Removes what lies at a store: what ended with an earlier incarnation than `incarnation`, or
  // all.
  void RemovePassing(StoreId store, Incarnation incarnation);
  void RemoveStore(StoreId store);

  const absl::flat_hash_map<PartitionVersion, Shards>& versions() const { return versions_; }

  // Bytes of what is in the table, at each of its places; without edges, which never change.
  int64_t bytes() const { return bytes_; }
  // Of versions that are not in it any more; only grows. Stores may still hold some.
  int64_t dropped_bytes() const { return dropped_bytes_; }

 private:
  void Drop(const PartitionVersion& version, const Shards& shards);
  // Removes the places of which `gone` says so.
  template <typename Gone>
  void RemovePlaces(const PartitionVersion& version, ShardInfo* shard, Gone gone);

  absl::flat_hash_map<PartitionVersion, Shards> versions_;
  int64_t bytes_ = 0;
  int64_t dropped_bytes_ = 0;
};

}  // namespace weft
