// RunConfig is everything about a run: PBG's configuration keys with PBG's names and defaults, and
// a few of our own. Schema: proto/weft/v1/run_config.proto.
//
// Reading is strict JSON. All problems are reported at once, each with its key, its value and what
// is allowed; an unknown key names the nearest valid one. Nothing is written by reading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "services/common/types.h"

namespace weft {

// An edge path whose edges a cluster's partition servers hold: "cluster://NAME".
inline constexpr absl::string_view kClusterPathPrefix = "cluster://";

enum class BucketOrder { kRandom, kAffinity, kInsideOut, kOutsideIn };
enum class Compute { kFused, kReference };  // keys: "fp32" | "reference"
enum class EarlyStoppingMetric { kLoss, kMrr };

struct EntityConfig {
  std::string name;
  int num_partitions = 1;
  bool featurized = false;
  std::optional<int> dimension;  // overrides RunConfig::dimension
};

struct RelationConfig {
  std::string name;
  EntityTypeId lhs = 0;
  EntityTypeId rhs = 0;
  double weight = 1.0;
  std::string operator_name = "none";
  bool all_negs = false;
};

struct EarlyStoppingConfig {
  EarlyStoppingMetric metric = EarlyStoppingMetric::kLoss;
  int patience = 0;  // epochs without a better value
};

// How a trainer exchanges shared parameters, with each parameter server.
struct ParamSyncConfig {
  double interval = 0.02;            // seconds from the begin of a round to the next
  int64_t max_bytes_per_second = 0;  // both ways; 0: no bound
};

struct RunConfig {
  // Graph and model.
  std::vector<EntityConfig> entities;  // in the order of the JSON object
  std::vector<RelationConfig> relations;
  bool dynamic_relations = false;
  int dimension = 0;
  double init_scale = 1e-3;
  std::optional<double> max_norm;
  bool global_emb = true;
  std::string comparator = "cos";
  bool bias = false;
  std::string loss_fn = "ranking";
  double margin = 0.1;
  double regularization_coef = 0;
  std::string regularizer = "N3";

  // Data.
  std::string entity_path;
  std::vector<std::string> edge_paths;
  std::string checkpoint_path;
  std::optional<std::string> init_path;
  std::optional<int> checkpoint_preservation_interval;  // epochs

  // Training.
  int num_epochs = 1;
  std::optional<int> num_edge_chunks;
  int64_t max_edges_per_chunk = 1'000'000'000;
  BucketOrder bucket_order = BucketOrder::kInsideOut;
  std::optional<int> workers;  // PBG's alias of `threads`
  int batch_size = 1000;
  int num_batch_negs = 50;
  int num_uniform_negs = 50;
  bool disable_lhs_negs = false;
  bool disable_rhs_negs = false;
  double lr = 1e-2;
  std::optional<double> relation_lr;
  double eval_fraction = 0.05;
  std::optional<int> eval_num_batch_negs = 1000;    // null: as in training
  std::optional<int> eval_num_uniform_negs = 1000;  // null: as in training
  int verbose = 0;
  bool distributed_tree_init_order = true;
  double hogwild_delay = 2;  // 0: all threads begin with the first batch

  // Ours.
  std::optional<uint64_t> seed;  // unset: drawn at the start of a run and kept with it
  std::optional<int> threads;    // unset: `workers`, else all cores this process may use
  Compute compute = Compute::kFused;
  int resident_partitions = 2;  // how many partitions a trainer may keep in memory
  bool prefetch = true;
  double commit_seconds = 60;  // a grant may name several buckets over the same partitions
  using EarlyStopping = EarlyStoppingConfig;
  std::optional<EarlyStopping> early_stopping;
  // In a cluster. 0: never, or no limit.
  double lease_seconds = 30;       // a trainer that is not heard for so long has lost its buckets
  double stall_timeout = 600;      // seconds without progress that end a trainer's session
  int max_bucket_attempts = 10;    // grants of a bucket that nobody hands in, then the run stops
  int partition_replicas = 1;      // servers at which each partition is stored
  double store_lost_after = 900;   // seconds after which a silent server's partitions are lost
  double checkpoint_minutes = 20;  // between manifests within a pass
  int partition_shard_size = 64;   // MiB; the shards of a partition move at once
  ParamSyncConfig param_sync;
  double max_param_staleness = 60;  // seconds after the last exchange when training pauses
  double init_tree_wait =
      30;  // seconds: how long distributed_tree_init_order keeps a trainer waiting

  // Whether partition servers hold the edges: all edge paths are "cluster://NAME", or none.
  bool HasClusterEdges() const;
  int EntityDimension(EntityTypeId type) const {
    return entities[type].dimension.value_or(dimension);
  }
  // Partitions on one side: the largest count among entity types used on that side.
  int NumPartitions(Side side) const;
  // Whether some relation has `type` on `side`.
  bool UsesEntityType(EntityTypeId type, Side side) const;
  // Worker threads: threads, else workers, else the cores this process may use.
  int NumThreads() const;
};

struct ConfigOptions {
  // Comparators, operators and losses beyond the built-in ones (registered with weft::nn).
  std::vector<std::string> extra_comparators;
  std::vector<std::string> extra_operators;
  std::vector<std::string> extra_losses;
};

struct ConfigResult {
  RunConfig config;
  std::vector<std::string> warnings;
};

// Reads `json` (the contents of `origin`, a path or a name for messages), applies `overrides`
// ("key=value", "a.b=value"; split at the first '='), checks everything.
// Errors: InvalidArgument; the message lists every problem, one a line.
absl::StatusOr<ConfigResult> ParseRunConfig(std::string_view json, std::string_view origin,
                                            absl::Span<const std::string> overrides = {},
                                            const ConfigOptions& options = {});

// ParseRunConfig of a file. Relative paths in it are relative to the working directory, as in PBG.
// Errors: NotFound when there is no such file, else as ParseRunConfig.
absl::StatusOr<ConfigResult> LoadRunConfig(const std::string& path,
                                           absl::Span<const std::string> overrides = {},
                                           const ConfigOptions& options = {});

// The effective configuration as JSON, with every key. `pbg_keys_only`: what PBG accepts.
std::string RunConfigToJson(const RunConfig& config, bool pbg_keys_only);

// The keys of a configuration's outermost object.
std::vector<std::string> RunConfigKeys();

}  // namespace weft
