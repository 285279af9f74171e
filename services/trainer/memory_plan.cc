#include "services/trainer/memory_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/trainer/edge_cache.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

// Programs, libraries, files' buffers, the run's state.
constexpr int64_t kFixedBytes = int64_t{64} << 20;
// Streams in both directions, each a segment that is sent and one that is received.
constexpr int64_t kTransportBytes = int64_t{64} << 20;
constexpr int kMaxPartitions = 65'536;

int64_t RowBytes(const TrainingTask& task, EntityTypeId type) {
  return 4 * (int64_t{task.config.EntityDimension(type)} + 1);  // with its Adagrad sum
}

// Tables that are always here.
int64_t SharedTableBytes(const TrainingTask& task) {
  int64_t bytes = 0;
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    if (task.IsShared(type)) bytes += task.count({type, 0}) * RowBytes(task, type);
  }
  return bytes;
}

int64_t ParameterBytes(const TrainingTask& task) {
  int64_t floats = 0;
  for (const ParameterShape& shape : ParameterShapes(task.spec)) floats += shape.rows * shape.cols;
  return 2 * 4 * floats;  // with their Adagrad sums
}

struct PartitionBytes {
  int64_t of_bucket = 0;  // at most
  int64_t largest = 0;
  int num_in_bucket = 0;
};

PartitionBytes MovingBytes(const TrainingTask& task) {
  PartitionBytes bytes;
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    if (task.IsShared(type)) continue;
    const int64_t largest = *std::ranges::max_element(task.entity_counts[t]) * RowBytes(task, type);
    const int sides = (task.config.UsesEntityType(type, Side::kLhs) ? 1 : 0) +
                      (task.config.UsesEntityType(type, Side::kRhs) ? 1 : 0);
    bytes.of_bucket += sides * largest;
    bytes.num_in_bucket += sides;
    bytes.largest = std::max(bytes.largest, largest);
  }
  return bytes;
}

bool IsFeaturized(const ModelSpec& spec, Side side) {
  return std::ranges::count(spec.featurized_relations[static_cast<int>(side)], 0) <
         std::ssize(spec.featurized_relations[static_cast<int>(side)]);
}

// Lists of features, with where each edge's begin. Twice: they grow by half as they are read, and
// the old half is there until it is copied.
int64_t FeatureBytes(const TrainingTask& task, const MemoryNeeds& needs) {
  int64_t bytes = 0;
  for (const Side side : kSides) {
    if (IsFeaturized(task.spec, side)) bytes += needs.bucket_edges * int64_t{sizeof(int64_t)};
  }
  return 2 * (bytes + needs.bucket_features * int64_t{sizeof(EntityOffset)});
}

// Gradients of relations whose negatives are all entities: of every row of both tables.
int64_t AllRowsBytes(const TrainingTask& task) {
  int64_t most = 0;
  for (size_t r = 0; r < task.spec.relations.size(); ++r) {
    const auto rel = static_cast<RelationTypeId>(r);
    const RelationSpec& relation = task.spec.relations[r];
    if (!relation.all_negs) continue;
    int64_t rows = 0;
    for (const Side side : kSides) {
      const EntityTypeId type = side == Side::kLhs ? relation.lhs : relation.rhs;
      if (task.spec.negatives(rel, side) != NegativeKind::kAll) continue;
      const bool same_table = rows > 0 && relation.lhs == relation.rhs && task.IsShared(type);
      if (!same_table) rows += *std::ranges::max_element(task.entity_counts[type]);
    }
    most = std::max(most, rows * (task.spec.dimension(rel) + 1) * 4);
  }
  return most * task.config.NumThreads();
}

// Rows, gradients and scores of the batches in work, roughly.
int64_t WorkspaceBytes(const TrainingTask& task, const MemoryNeeds& needs) {
  // Featurized sides have a gradient for each feature of a batch.
  const int64_t features = needs.bucket_edges == 0 ? 0 : needs.bucket_features / needs.bucket_edges;
  int64_t table = 0;
  for (const std::vector<int64_t>& counts : task.entity_counts) {
    table = std::max(table, *std::ranges::max_element(counts));
  }
  auto of = [features, table](const ModelSpec& spec) {
    int64_t dimension = 1;
    for (const EntityTypeSpec& type : spec.entity_types) {
      dimension = std::max<int64_t>(dimension, type.dimension);
    }
    const int64_t batch = spec.batch_size;
    const int64_t chunk = std::max(1, spec.num_batch_negs);
    const int64_t candidates = spec.num_batch_negs + spec.num_uniform_negs;
    // Of each side a gradient for each distinct row, all positives thrice (as they are, as queries,
    // and the queries' gradients), and a few times what is compared in a chunk.
    const int64_t rows = batch + (batch + chunk - 1) / chunk * spec.num_uniform_negs;
    const int64_t vectors =
        2 * (std::min(rows, table) + 3 * batch + 4 * (chunk + spec.num_uniform_negs));
    return 4 * ((vectors + features * batch) * dimension + 2 * batch * candidates);
  };
  int64_t bytes = of(task.spec);
  if (task.config.eval_fraction > 0) bytes += of(EvaluationSpec(task.spec, task.config));
  return bytes * task.config.NumThreads();
}

MemoryPlan Plan(const TrainingTask& task, MemoryNeeds needs) {
  // What a cluster tells of edges without features are their weights.
  if (!IsFeaturized(task.spec, Side::kLhs) && !IsFeaturized(task.spec, Side::kRhs)) {
    needs.bucket_features = 0;
  }
  const PartitionBytes moving = MovingBytes(task);
  const int64_t words = 2 + (task.num_relations() > 1 ? 1 : 0) + 1;  // weights may be there
  const int64_t edges = needs.bucket_edges * words * 4;
  const int64_t features = FeatureBytes(task, needs);
  const int64_t shared = SharedTableBytes(task);
  const int64_t parameters = ParameterBytes(task);
  MemoryPlan plan;
  plan.prefetch = task.config.prefetch;
  const auto add = [&](const char* what, int64_t bytes) {
    if (bytes <= 0) return;
    plan.bytes += bytes;
    plan.parts.push_back({what, bytes});
  };
  const auto fill = [&] {
    plan.bytes = 0;
    plan.parts.clear();
    add("program", kFixedBytes);
    add("tables of entity types with one partition", shared);
    add("parameters of relations", parameters);
    add("the bucket's partitions", moving.of_bucket);
    add("further resident partitions",
        std::max(0, task.config.resident_partitions - moving.num_in_bucket) * moving.largest);
    add("edges of the bucket", edges);
    add("features of the bucket's edges", features);
    add("batches in work", WorkspaceBytes(task, needs));
    add("gradients of all entities (all_negs)", AllRowsBytes(task));
    if (plan.prefetch) {
      add("read ahead: partitions", moving.of_bucket);
      add("read ahead: edges", std::min(edges + features, EdgeCache::kMaxPrefetchBytes));
    }
    if (plan.background_store) add("partitions that are being stored", moving.of_bucket);
    if (needs.in_cluster) {
      add("what the parameter servers are known to have", shared + parameters);
      add("transport", kTransportBytes);
    }
  };
  fill();
  if (!needs.available.has_value()) return plan;
  for (bool* const luxury : {&plan.prefetch, &plan.background_store}) {
    if (plan.bytes <= *needs.available || !*luxury) continue;
    *luxury = false;
    fill();
  }
  return plan;
}

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t NumEdgeChunks(const RunConfig& config, int64_t bucket_edges) {
  return config.num_edge_chunks.value_or(std::max<int64_t>(
      1, DivideUp(bucket_edges, std::max<int64_t>(1, config.max_edges_per_chunk))));
}

// As if it had been imported into so many partitions of these types, evenly.
TrainingTask Repartition(TrainingTask task, const std::vector<size_t>& types, int num_partitions) {
  for (const size_t t : types) {
    std::vector<int64_t>& counts = task.entity_counts[t];
    const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    counts.assign(static_cast<size_t>(num_partitions), (all + num_partitions - 1) / num_partitions);
    task.config.entities[t].num_partitions = num_partitions;
  }
  return task;
}

}  // namespace

int64_t LargestEdgeChunk(const RunConfig& config, int64_t bucket_edges) {
  return DivideUp(bucket_edges, NumEdgeChunks(config, bucket_edges));
}

int64_t FeaturesOfChunk(const RunConfig& config, int64_t bucket_edges, int64_t bucket_features) {
  return DivideUp(bucket_features, NumEdgeChunks(config, bucket_edges));
}

std::optional<FittingPartitions> FindFittingPartitions(const TrainingTask& task,
                                                       const MemoryNeeds& needs) {
  if (!needs.available.has_value()) return std::nullopt;
  std::vector<size_t> types;
  int before = 1;
  std::optional<size_t> largest;
  const auto bytes_of = [&](size_t t) {
    const std::vector<int64_t>& counts = task.entity_counts[t];
    return std::accumulate(counts.begin(), counts.end(), int64_t{0}) *
           RowBytes(task, static_cast<EntityTypeId>(t));
  };
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    // Features in one partition may be such that they cannot be parted.
    if (task.config.entities[t].featurized && task.entity_counts[t].size() == 1) continue;
    if (!largest.has_value() || bytes_of(t) > bytes_of(*largest)) largest = t;
    if (task.entity_counts[t].size() == 1) continue;
    types.push_back(t);
    before = std::max(before, static_cast<int>(task.entity_counts[t].size()));
  }
  if (!largest.has_value()) return std::nullopt;
  if (std::ranges::find(types, *largest) == types.end()) types.push_back(*largest);
  const auto fits = [&](int num_partitions) {
    MemoryNeeds then = needs;
    const double share = static_cast<double>(before) / num_partitions;
    for (int64_t* const in_bucket : {&then.bucket_edges, &then.bucket_features}) {
      *in_bucket = static_cast<int64_t>(static_cast<double>(*in_bucket) * share * share);
    }
    return Plan(Repartition(task, types, num_partitions), then).bytes <= *needs.available;
  };
  int too_few = before;
  int enough = before;
  while (enough < kMaxPartitions && !fits(enough = std::min(2 * enough, kMaxPartitions))) {
    too_few = enough;
  }
  if (!fits(enough)) return std::nullopt;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  FittingPartitions found;
  found.num_partitions = enough;
  for (const size_t t : types) found.entity_types.push_back(task.config.entities[t].name);
  return found;
}

absl::StatusOr<MemoryPlan> PlanMemory(const TrainingTask& task, const MemoryNeeds& needs) {
  MemoryPlan plan = Plan(task, needs);
  if (!needs.available.has_value() || plan.bytes <= *needs.available) return plan;
  const auto gigabytes = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-9; };
  std::string advice;
  if (const std::optional<FittingPartitions> fit = FindFittingPartitions(task, needs)) {
    advice = absl::StrCat("it fits with entities.",
                          absl::StrJoin(fit->entity_types, ".num_partitions and entities."),
                          ".num_partitions = ", fit->num_partitions);
  } else {
    const auto largest = std::ranges::max_element(plan.parts, {}, &MemoryPlan::Part::bytes);
    advice = absl::StrFormat("no number of partitions is enough (%s: %.2f GB)", largest->what,
                             gigabytes(largest->bytes));
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "training needs about %.2f GB of memory, and %.2f GB are available: %s; less is needed, too, "
      "with a smaller dimension, more edge chunks (num_edge_chunks) or fewer threads",
      gigabytes(plan.bytes), gigabytes(*needs.available), advice));
}

}  // namespace weft
