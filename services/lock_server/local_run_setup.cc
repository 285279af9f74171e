#include "services/lock_server/local_run_setup.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "graph/dataset_manifest.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_codec.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_start.h"

namespace weft {
namespace {

uint64_t RandomBits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

ClusterOptions::Duration Seconds(double seconds) {
  return std::chrono::duration_cast<ClusterOptions::Duration>(
      std::chrono::duration<double>(seconds));
}

RunPlan MakeClusterPlan(const RunConfig& config, const LocalData& data, int num_param_servers) {
  RunPlan plan = MakeRunPlan(config, data);
  plan.edges_per_second.reset();  // as the trainers measure it
  ClusterOptions& cluster = plan.cluster.emplace();
  do {
    cluster.incarnation = RandomBits();
  } while (cluster.incarnation == 0);
  cluster.lease = Seconds(config.lease_seconds);
  cluster.stall_timeout = Seconds(config.stall_timeout);
  cluster.max_bucket_attempts = config.max_bucket_attempts;
  cluster.partition_replicas = config.partition_replicas;
  cluster.store_lost_after = Seconds(config.store_lost_after);
  cluster.checkpoint_interval = Seconds(config.checkpoint_minutes * 60);
  cluster.num_param_servers = num_param_servers;
  cluster.encode_state = EncodeState;
  cluster.init_tree = config.distributed_tree_init_order;
  cluster.verbose = config.verbose >= 1;
  cluster.init_tree_wait = Seconds(config.init_tree_wait);
  cluster.init_path = config.init_path.value_or("");
  for (const auto& [key, value] : SchemaSettings(DatasetSchemaOf(config))) {
    cluster.import_schema.push_back(absl::StrCat(key, "=", value));
  }
  return plan;
}

// What was looked at when the run was created.
LocalData DataOf(const RunState& state) {
  LocalData data;
  for (const RunShape::EntityType& type : state.shape.entity_types) {
    data.entity_counts.push_back(type.counts);
  }
  data.num_dynamic_relations = state.shape.num_dynamic_relations;
  data.entities_digest = state.shape.entities_digest;
  for (size_t i = 0; i < state.edge_paths.size(); ++i) {
    data.edge_paths.push_back({state.bucket_edges[i], state.edge_paths[i].digest, {}});
  }
  return data;
}

// What an import has brought; without one, what is known before: nothing.
LocalData ImportedData(const RunConfig& config, const EdgeImport& import,
                       const PlaceTable& places) {
  LocalData data;
  data.entity_counts = import.edges.entity_counts;
  if (!import.complete) {
    data.entity_counts.clear();
    for (const EntityConfig& type : config.entities) {
      data.entity_counts.emplace_back(type.num_partitions);
    }
  }
  data.num_dynamic_relations = import.edges.num_dynamic_relations;
  data.entities_digest = import.edges.entities_digest;
  const int num_lhs = config.NumPartitions(Side::kLhs);
  const int num_rhs = config.NumPartitions(Side::kRhs);
  for (size_t i = 0; i < config.edge_paths.size(); ++i) {
    LocalData::EdgePath& path = data.edge_paths.emplace_back();
    if (!import.complete) continue;
    path.digest = import.edges.paths[i].digest;
    for (PartitionId lhs = 0; lhs < num_lhs; ++lhs) {
      for (PartitionId rhs = 0; rhs < num_rhs; ++rhs) {
        const PlaceTable::Shards* shards = places.Find(
            EdgesVersion(import.token, static_cast<int>(i), {lhs, rhs}, num_lhs, num_rhs));
        path.bucket_edges.push_back(
            shards == nullptr ? 0 : shards->back().first_row + shards->back().num_rows);
      }
    }
  }
  return data;
}

// Whether an import that was begun before is one for this configuration.
bool Fits(const ImportedEdges& edges, const RunConfig& config) {
  std::vector<std::string> paths;
  for (const ImportedEdges::Path& path : edges.paths) paths.push_back(path.path);
  bool fits = paths == config.edge_paths && edges.entity_counts.size() == config.entities.size();
  for (size_t t = 0; fits && t < config.entities.size(); ++t) {
    fits = edges.entity_counts[t].size() == static_cast<size_t>(config.entities[t].num_partitions);
  }
  return fits;
}

ClusterRunSetup NewRun(const RunConfig& config, const LocalData& data, bool awaits_edges,
                       int num_param_servers) {
  ClusterRunSetup setup;
  setup.plan = MakeClusterPlan(config, data, num_param_servers);
  RunState& state = setup.state;
  state.run_id = absl::StrFormat("%016x%016x", RandomBits(), RandomBits());
  state.seed = config.seed.value_or(RandomBits());
  state.shape = MakeRunShape(config, data);
  for (size_t i = 0; i < config.edge_paths.size(); ++i) {
    state.edge_paths.push_back({config.edge_paths[i], data.edge_paths[i].digest});
    state.bucket_edges.push_back(data.edge_paths[i].bucket_edges);
  }
  state.position.num_edge_chunks =
      config.num_edge_chunks.value_or(data.NumEdgeChunks(config.max_edges_per_chunk));
  std::vector<int> num_partitions;
  for (const EntityConfig& type : config.entities) num_partitions.push_back(type.num_partitions);
  state.versions = VersionTable(num_partitions);
  state.config_json = RunConfigToJson(config, /*pbg_keys_only=*/false);
  if (awaits_edges) {
    setup.plan.bucket_edges.clear();
    state.bucket_edges.clear();
  }
  return setup;
}

// A run that has waited for its edges so far.
absl::StatusOr<ClusterRunSetup> ContinueWaiting(const RunConfig& config, RunState stored,
                                                int num_param_servers) {
  EdgeImport import;
  if (config.HasClusterEdges() && Fits(stored.edge_import.edges, config)) {
    import = std::move(stored.edge_import);
  }
  LocalData data;
  if (config.HasClusterEdges()) {
    data = ImportedData(config, import, stored.places);
  } else {
    WEFT_ASSIGN_OR_RETURN(data, ReadLocalData(config));
  }
  ClusterRunSetup setup =
      NewRun(config, data, config.HasClusterEdges() && !import.complete, num_param_servers);
  RunState& state = setup.state;
  state.run_id = stored.run_id;
  if (!config.seed.has_value()) state.seed = stored.seed;
  state.term = stored.term;
  state.paused = stored.paused;
  state.servers = std::move(stored.servers);
  if (import.token != kInitialToken) state.places = std::move(stored.places);
  state.edge_import = std::move(import);
  return setup;
}

}  // namespace

absl::StatusOr<ClusterRunSetup> MakeClusterRun(const RunConfig& config, int num_param_servers) {
  if (config.HasClusterEdges()) {
    return NewRun(config, ImportedData(config, {}, {}), /*awaits_edges=*/true, num_param_servers);
  }
  WEFT_ASSIGN_OR_RETURN(const LocalData data, ReadLocalData(config));
  return NewRun(config, data, /*awaits_edges=*/false, num_param_servers);
}

absl::StatusOr<ClusterRunSetup> ContinueClusterRun(const RunConfig& config, RunState stored,
                                                   int num_param_servers) {
  if (stored.bucket_edges.empty()) {
    return ContinueWaiting(config, std::move(stored), num_param_servers);
  }
  const LocalData data = DataOf(stored);
  std::vector<std::string> changes = data.entity_counts.size() == config.entities.size()
                                         ? DescribeChanges(stored.shape, MakeRunShape(config, data))
                                         : std::vector<std::string>{"entities: other types"};
  std::vector<std::string> paths;
  for (const EdgePath& path : stored.edge_paths) paths.push_back(path.path);
  if (paths != config.edge_paths) {
    changes.push_back(absl::StrCat("edge_paths: was [", absl::StrJoin(paths, ", "), "], is [",
                                   absl::StrJoin(config.edge_paths, ", "), "]"));
  }
  if (config.seed.has_value() && *config.seed != stored.seed) {
    changes.push_back(absl::StrCat("seed: was ", stored.seed, ", is ", *config.seed));
  }
  if (config.num_edge_chunks.has_value() &&
      *config.num_edge_chunks != stored.position.num_edge_chunks) {
    changes.push_back(absl::StrCat("num_edge_chunks: was ", stored.position.num_edge_chunks,
                                   ", is ", *config.num_edge_chunks));
  }
  if (!changes.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder holds run ", stored.run_id,
        ", which cannot change in this; nothing was changed:\n  ", absl::StrJoin(changes, "\n  ")));
  }
  ClusterRunSetup setup;
  setup.plan = MakeClusterPlan(config, data, num_param_servers);
  stored.config_json = RunConfigToJson(config, /*pbg_keys_only=*/false);
  setup.state = std::move(stored);
  return setup;
}

}  // namespace weft
