// What partition and parameter servers and the lock server say to each other (StoreSync in
// proto/weft/v1/lock_service.proto, which has the rules), as logic sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "services/common/cluster_types.h"
#include "services/common/types.h"

namespace weft {

// Blobs beside partitions are versions, too: tokens of one sequence name all that is kept.
inline constexpr EntityTypeId kSnapshotType = -1;  // partition: index of the parameter server
inline constexpr EntityTypeId kManifestType = -2;  // partition: 0
inline constexpr EntityTypeId kEdgesType = -3;     // partition: EdgesVersion's

// The edges of a bucket, as brought by the import of this token.
inline PartitionVersion EdgesVersion(Token token, int edge_path, Bucket bucket, int num_lhs,
                                     int num_rhs) {
  return {{kEdgesType, (edge_path * num_lhs + bucket.lhs) * num_rhs + bucket.rhs}, token};
}

enum class RunPhase : uint8_t {
  kPreparing = 1,
  kRunning = 2,
  kCutting = 3,
  kRewinding = 4,
  kPaused = 5,
  kFailed = 6,
  kDone = 7,
};

// What must not be deleted, as of a moment. Everything else with a token <= `high_water` is garbage
// for ever.
struct KeepList {
  Token high_water = kInitialToken;
  std::vector<PartitionVersion> keep;
  std::vector<Token> keep_tokens = {};  // everything under these: edges
};

struct ShardName {
  PartitionVersion version;
  uint32_t shard = 0;

  auto operator<=>(const ShardName&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const ShardName& n) {
    return H::combine(std::move(h), n.version, n.shard);
  }
};

// What a parameter server has, by its own storage.
struct ParamServerState {
  Generation generation = 0;    // that it was restored for; 0: nothing yet
  int64_t first_open_pass = 0;  // the passes before are cut
  std::vector<Incarnation> joined;
};

struct RestoreParameters {
  Generation generation = 0;
  std::vector<VersionInfo> snapshots;  // of all parameter servers; none: initial values
  int64_t first_open_pass = 0;
  uint32_t server_index = 0;
  uint32_t num_servers = 0;
};

struct CutParameters {
  Generation generation = 0;
  int64_t first_open_pass = 0;
};

struct StoreSnapshot {
  PartitionVersion version;
  std::optional<int64_t> first_open_pass;  // of that cut; none: of now
  std::vector<StoreId> store_at;           // best first
  int replicas = 1;
};

struct PersistShards {
  std::vector<ShardName> shards;
};

struct CopyShard {
  PartitionVersion version;
  ShardInfo shard;  // with its places
};

struct VerifyShard {
  ShardName shard;
};

struct StoreManifest {
  PartitionVersion version;
  std::string manifest;
};

using StoreOrder = std::variant<RestoreParameters, CutParameters, StoreSnapshot, PersistShards,
                                CopyShard, VerifyShard, StoreManifest>;

struct NumberedOrder {
  uint64_t id = 0;
  StoreOrder order;
};

struct OrderResult {
  uint64_t order_id = 0;
  absl::Status status;
  std::optional<VersionInfo> stored;  // of StoreSnapshot and CopyShard
};

struct StoreReport {
  ServerInfo server;
  uint64_t free_bytes = 0;
  ParamServerState params;
  std::vector<OrderResult> results;
  std::vector<ShardName> persisted;
};

struct ServerList {
  uint64_t revision = 0;
  std::vector<ServerInfo> partition_servers;
  std::vector<ServerInfo> param_servers;  // in the order that placement follows
};

// What does not change while a run lives, as far as servers need it.
struct StoreRunInfo {
  std::string config_json;  // with every key
  uint64_t seed = 0;
  std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]
  int64_t num_dynamic_relations = 0;
};

struct StoreInstructions {
  uint64_t revision = 0;
  RunPhase phase = RunPhase::kPreparing;
  ServerList servers;
  std::optional<KeepList> keep_list;
  std::vector<NumberedOrder> orders;
  std::vector<Incarnation> ended_sessions;  // of those that have joined
};

}  // namespace weft
