#include "cli/cluster_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/edge_codec.h"
#include "services/common/status_macros.h"
#include "services/trainer/model/model_parameters.h"
#include "services/trainer/training_task.h"

namespace weft::cli {
namespace {

constexpr int64_t kProgramBytes = int64_t{48} << 20;
// Measured (docs/planning.md): what partition servers take beside streams and versions, what
// parameter servers do for their write buffers, and how often they hold what is shared while it is
// stored.
constexpr int64_t kStoreBytes = int64_t{64} << 20;
constexpr int64_t kWriteBufferBytes = int64_t{128} << 20;
constexpr int64_t kSnapshotCopies = 4;
constexpr int64_t kStreamBytes = int64_t{16} << 20;  // of each trainer, at a partition server
// A bucket's state, statistics and places; statistics are kept for two passes.
constexpr int64_t kBucketBytes = 1'500;

struct ModelBytes {
  int64_t partitioned = 0;
  int64_t of_bucket = 0;  // the largest bucket's partitions
  int64_t shared = 0;     // with optimizer state
  int64_t shared_rows = 0;
};

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

ModelBytes BytesOf(const TrainingTask& task) {
  ModelBytes bytes;
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    const int64_t row = 4 * (int64_t{task.config.EntityDimension(type)} + 1);
    const std::vector<int64_t>& counts = task.entity_counts[t];
    if (task.IsShared(type)) {
      bytes.shared += Sum(counts) * row;
      bytes.shared_rows += 2 * Sum(counts);
      continue;
    }
    bytes.partitioned += Sum(counts) * row;
    const int sides = (task.config.UsesEntityType(type, Side::kLhs) ? 1 : 0) +
                      (task.config.UsesEntityType(type, Side::kRhs) ? 1 : 0);
    bytes.of_bucket += sides * *std::ranges::max_element(counts) * row;
  }
  for (const ParameterShape& shape : ParameterShapes(task.spec)) {  // and sums of the same shape
    bytes.shared += 2 * 4 * shape.rows * shape.cols;
    bytes.shared_rows += 2 * shape.rows;
  }
  return bytes;
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

double Gigabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

class Planner {
 public:
  Planner(const RunConfig& config, const LocalData& data, const PlanOptions& options)
      : config_(config), data_(data), options_(options) {}

  absl::StatusOr<ClusterPlan> Run() {
    WEFT_ASSIGN_OR_RETURN(
        task_, MakeTrainingTask(config_, data_.entity_counts, data_.num_dynamic_relations));
    bytes_ = BytesOf(task_);
    plan_.model_bytes = bytes_.partitioned + bytes_.shared;
    WEFT_RETURN_IF_ERROR(AddTrainers());
    if (options_.trainers == 0) return std::move(plan_);
    WEFT_RETURN_IF_ERROR(AddPartitionServers());
    WEFT_RETURN_IF_ERROR(AddParamServers());
    WEFT_RETURN_IF_ERROR(AddLockServer());
    return std::move(plan_);
  }

 private:
  absl::Status AddTrainers() {
    const bool cluster = options_.trainers > 0;
    const MemoryNeeds needs = {.bucket_edges = LargestEdgeChunk(config_, data_.LargestBucket()),
                               .available = options_.memory,
                               .in_cluster = cluster,
                               .bucket_features = FeaturesOfChunk(config_, data_.LargestBucket(),
                                                                  data_.LargestBucketFeatures())};
    absl::StatusOr<MemoryPlan> memory = PlanMemory(task_, needs);
    if (!memory.ok()) return Annotate(memory.status(), cluster ? "trainer" : "weft train");
    RolePlan role = {cluster ? "trainer" : "weft train",
                     std::max(1, options_.trainers),
                     memory->bytes,
                     0,
                     std::move(memory->parts),
                     {},
                     config_.NumThreads()};
    if (!config_.threads && !config_.workers) {
      role.notes.push_back(absl::StrCat("threads as cores here: ", role.threads,
                                        " (--set threads=N for other machines)"));
    }
    if (config_.prefetch && !memory->prefetch) role.notes.push_back("does not read ahead");
    if (!memory->background_store) role.notes.push_back("stores before it trains on");
    if (!cluster) {
      // Two versions while one is made, and the blobs of a pass.
      role.disk_bytes = 3 * bytes_.partitioned + 2 * bytes_.shared;
    }
    plan_.roles.push_back(std::move(role));
    return absl::OkStatus();
  }

  absl::Status AddPartitionServers() {
    const int servers = options_.partition_servers;
    const int replicas = std::min(config_.partition_replicas, servers);
    const int64_t kept = replicas * (2 * bytes_.partitioned + options_.trainers * bytes_.of_bucket +
                                     2 * bytes_.shared);
    int64_t edge_bytes = 0;
    for (const LocalData::EdgePath& path : data_.edge_paths) {
      const int64_t edges = Sum(path.bucket_edges);
      edge_bytes += edges * EdgeBytes(true);
      // Each, and how many an edge's two entities have.
      if (!path.bucket_features.empty()) edge_bytes += 4 * (Sum(path.bucket_features) + 2 * edges);
    }
    edge_bytes *= config_.HasClusterEdges() ? replicas : 0;
    RolePlan role = {"partition server", servers, 0, DivideUp(kept + edge_bytes, servers), {}, {}};
    role.parts.push_back({"program", kProgramBytes});
    role.parts.push_back({"store", kStoreBytes});
    role.parts.push_back({"streams", options_.trainers * kStreamBytes});
    if (options_.memory_store) {
      role.parts.push_back({"versions of partitions", DivideUp(kept, servers)});
    }
    const int64_t per_server = kProgramBytes + kStoreBytes + options_.trainers * kStreamBytes;
    std::string advice = "use fewer trainers";
    if (options_.memory_store && options_.memory.value_or(0) > per_server) {
      advice = absl::StrCat("with ", DivideUp(kept, *options_.memory - per_server),
                            " of them it fits (--partition-servers), or with --store rocksdb, "
                            "which keeps them on disk");
    }
    return Add(std::move(role), advice);
  }

  absl::Status AddParamServers() {
    const int servers = options_.param_servers;
    if (servers == 0 && bytes_.shared > 0) {
      return absl::InvalidArgumentError(
          "the run has shared parameters, but no parameter server: --param-servers");
    }
    if (servers == 0) return absl::OkStatus();
    const int64_t rows = DivideUp(bytes_.shared_rows, servers) * 32;  // versions and changes
    const int64_t values = DivideUp(bytes_.shared, servers);
    RolePlan role = {"parameter server", servers, 0, 3 * values, {}, {}};
    const int64_t buffers = std::min(kWriteBufferBytes, 4 * values);
    role.parts = {{"program", kProgramBytes},
                  {"rows", values + rows},
                  {"write buffers", buffers},
                  {"snapshots", kSnapshotCopies * values}};
    const int64_t left = options_.memory.value_or(0) - kProgramBytes - buffers;
    std::string advice = "give it more";
    if (left > 0) {
      advice = absl::StrCat(
          "with ", DivideUp((1 + kSnapshotCopies) * bytes_.shared + 32 * bytes_.shared_rows, left),
          " of them it fits (--param-servers); a large entity type moves less "
          "with more than one partition");
    }
    return Add(std::move(role), advice);
  }

  absl::Status AddLockServer() {
    const int64_t buckets =
        int64_t{config_.NumPartitions(Side::kLhs)} * config_.NumPartitions(Side::kRhs);
    RolePlan role = {"lock server", 1, 0, 4 * buckets * kBucketBytes, {}, {}};
    role.parts = {{"program", kProgramBytes}, {"buckets", buckets * kBucketBytes}};
    return Add(std::move(role), "use fewer partitions");
  }

  absl::Status Add(RolePlan role, const std::string& advice) {
    std::erase_if(role.parts, [](const MemoryPlan::Part& part) { return part.bytes <= 0; });
    for (const MemoryPlan::Part& part : role.parts) role.memory_bytes += part.bytes;
    if (options_.memory.has_value() && role.memory_bytes > *options_.memory) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s: each of %d needs about %.2f GB of memory, and %.2f GB are given: %s", role.role,
          role.count, Gigabytes(role.memory_bytes), Gigabytes(*options_.memory), advice));
    }
    plan_.roles.push_back(std::move(role));
    return absl::OkStatus();
  }

  const RunConfig& config_;
  const LocalData& data_;
  const PlanOptions& options_;
  TrainingTask task_;
  ModelBytes bytes_;
  ClusterPlan plan_;
};

}  // namespace

absl::StatusOr<ClusterPlan> MakeClusterPlan(const RunConfig& config, const LocalData& data,
                                            const PlanOptions& options) {
  return Planner(config, data, options).Run();
}

LocalData EvenData(const RunConfig& config, const ExpectedData& expected) {
  LocalData data;
  data.num_dynamic_relations = expected.num_dynamic_relations;
  // Without losing one: the first ones have one more.
  const auto spread = [](int64_t all, int64_t parts) {
    std::vector<int64_t> shares(static_cast<size_t>(parts), all / parts);
    for (int64_t i = 0; i < all % parts; ++i) ++shares[static_cast<size_t>(i)];
    return shares;
  };
  for (size_t t = 0; t < config.entities.size(); ++t) {
    data.entity_counts.push_back(spread(expected.entities[t], config.entities[t].num_partitions));
  }
  const int64_t buckets =
      int64_t{config.NumPartitions(Side::kLhs)} * config.NumPartitions(Side::kRhs);
  const std::vector<int64_t> in_path =
      spread(expected.edges, static_cast<int64_t>(config.edge_paths.size()));
  for (const int64_t of_path : in_path) {
    LocalData::EdgePath& path = data.edge_paths.emplace_back();
    path.bucket_edges = spread(of_path, buckets);
    if (expected.features_per_edge == 0) continue;
    for (const int64_t edges : path.bucket_edges) {
      const double features = static_cast<double>(edges) * expected.features_per_edge;
      path.bucket_features.push_back(static_cast<int64_t>(std::ceil(features)));
    }
  }
  return data;
}

}  // namespace weft::cli
