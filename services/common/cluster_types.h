// The names of the cluster: which life of which run, which server, where something lies.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/common/types.h"

namespace weft {

using Incarnation = uint64_t;  // one process run; random, never 0
using StoreId = uint64_t;      // a server's identity on its disk; random, never 0
using Term = uint64_t;         // life of the lock server; +1 at each of its starts
using Generation = uint64_t;   // life of the run between rewinds; +1 at each

// Which life of which run a call speaks of. Parts that a caller does not know yet are empty, and
// are not compared (RunFence).
struct RunContext {
  std::string run_id;  // 32 hexadecimal digits
  Term term = 0;
  Incarnation lock_server = 0;  // the lock server's incarnation in that term
  std::optional<Generation> generation;

  bool operator==(const RunContext&) const = default;
};

enum class ServerRole : uint8_t { kLock = 1, kPartition = 2, kParam = 3, kTrainer = 4 };

constexpr const char* RoleName(ServerRole role) {
  switch (role) {
    case ServerRole::kLock:
      return "lock server";
    case ServerRole::kPartition:
      return "partition server";
    case ServerRole::kParam:
      return "parameter server";
    case ServerRole::kTrainer:
      return "trainer";
  }
  return "server";
}

// A server as the lock server knows it. The address belongs to this incarnation only.
struct ServerInfo {
  ServerRole role = ServerRole::kLock;
  StoreId store_id = 0;
  Incarnation incarnation = 0;
  std::string address;   // host:port
  bool durable = false;  // what it stores survives its process

  bool operator==(const ServerInfo&) const = default;
};

// Where something is stored: at that store as long as it lives, or, if not durable, as long as that
// incarnation of it does.
struct Place {
  StoreId store_id = 0;
  Incarnation incarnation = 0;  // 0: durable

  auto operator<=>(const Place&) const = default;
};

// A store on a new disk is found at the address of the one before, too: it is one replica.
inline void AddReplica(const Place& place, std::vector<Place>* places) {
  const bool known = std::ranges::any_of(
      *places, [&](const Place& other) { return other.store_id == place.store_id; });
  if (!known) places->push_back(place);
}

// One shard of a version: consecutive rows of the partition with their optimizer state.
struct ShardInfo {
  uint32_t shard = 0;  // counts from 0
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t size_bytes = 0;
  uint64_t xxh3 = 0;  // of its segments' checksums (partition_server/blob_format.h)
  std::vector<Place> places;

  bool operator==(const ShardInfo&) const = default;
};

// Where all of a version lies.
struct VersionInfo {
  PartitionVersion version;
  std::vector<ShardInfo> shards;

  bool operator==(const VersionInfo&) const = default;
};

}  // namespace weft
