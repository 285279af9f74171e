#include "services/trainer/memory_plan.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/trainer/edge_cache.h"

namespace weft {
namespace {

// Programs, libraries, files' buffers, the run's state.
constexpr int64_t kFixedBytes = int64_t{64} << 20;

int64_t RowBytes(const TrainingTask& task, EntityTypeId type) {
  return 4 * (int64_t{task.config.EntityDimension(type)} + 1);  // with its Adagrad sum
}

// Tables that are always here.
int64_t SharedBytes(const TrainingTask& task) {
  int64_t bytes = 0;
  for (size_t t = 0; t < task.entity_counts.size(); ++t) {
    const auto type = static_cast<EntityTypeId>(t);
    if (task.IsShared(type)) bytes += task.count({type, 0}) * RowBytes(task, type);
  }
  return bytes;
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

// Rows, gradients and scores of the batches in work, roughly.
int64_t WorkspaceBytes(const TrainingTask& task) {
  auto of = [](const ModelSpec& spec) {
    int64_t dimension = 1;
    for (const EntityTypeSpec& type : spec.entity_types) {
      dimension = std::max<int64_t>(dimension, type.dimension);
    }
    const int64_t batch = spec.batch_size;
    const int64_t chunk = std::max(1, spec.num_batch_negs);
    const int64_t candidates = spec.num_batch_negs + spec.num_uniform_negs;
    const int64_t rows = batch + (batch + chunk - 1) / chunk * spec.num_uniform_negs;
    return 4 * (6 * rows * dimension + 2 * batch * candidates);
  };
  int64_t bytes = of(task.spec);
  if (task.config.eval_fraction > 0) bytes += of(EvaluationSpec(task.spec, task.config));
  return bytes * task.config.NumThreads();
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const TrainingTask& task, int64_t bucket_edges,
                                      std::optional<int64_t> available) {
  const PartitionBytes moving = MovingBytes(task);
  const int64_t extra_copies =
      std::max(0, task.config.resident_partitions - moving.num_in_bucket) * moving.largest;
  const int64_t words = 2 + (task.num_relations() > 1 ? 1 : 0) + 1;  // weights may be there
  const int64_t edges = bucket_edges * words * 4;
  const int64_t base = kFixedBytes + SharedBytes(task) + moving.of_bucket + extra_copies + edges +
                       WorkspaceBytes(task);

  MemoryPlan plan;
  plan.prefetch = task.config.prefetch;
  auto bytes = [&] {
    int64_t total = base;
    if (plan.prefetch) total += moving.of_bucket + std::min(edges, EdgeCache::kMaxPrefetchBytes);
    if (plan.background_store) total += moving.of_bucket;
    return total;
  };
  if (available.has_value() && bytes() > *available) plan.prefetch = false;
  if (available.has_value() && bytes() > *available) plan.background_store = false;
  plan.bytes = bytes();
  if (available.has_value() && plan.bytes > *available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "training needs about %.1f GB of memory, and %.1f GB are available: use more partitions "
        "(entities.TYPE.num_partitions), a smaller dimension, more edge chunks "
        "(num_edge_chunks) or fewer threads",
        static_cast<double>(plan.bytes) * 1e-9, static_cast<double>(*available) * 1e-9));
  }
  return plan;
}

}  // namespace weft
