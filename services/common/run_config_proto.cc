#include "services/common/run_config_proto.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "services/common/nearest_key.h"
#include "weft/v1/run_config.pb.h"

namespace weft {
namespace {

constexpr int kNull = -1;  // Rule.null_as

void ReadOrNull(bool present, int value, std::optional<int>* to) {
  if (present) *to = value == kNull ? std::nullopt : std::optional(value);
}

template <typename Enum>
struct Named {
  Enum value;
  absl::string_view name;
};

constexpr std::array<Named<BucketOrder>, 4> kBucketOrders = {{
    {BucketOrder::kRandom, "random"},
    {BucketOrder::kAffinity, "affinity"},
    {BucketOrder::kInsideOut, "inside_out"},
    {BucketOrder::kOutsideIn, "outside_in"},
}};
constexpr std::array<Named<Compute>, 2> kComputes = {{
    {Compute::kFused, "fp32"},
    {Compute::kReference, "reference"},
}};
constexpr std::array<Named<EarlyStoppingMetric>, 2> kMetrics = {{
    {EarlyStoppingMetric::kLoss, "loss"},
    {EarlyStoppingMetric::kMrr, "mrr"},
}};

template <typename Enum, size_t n>
void ReadName(absl::string_view name, const std::array<Named<Enum>, n>& table, Enum* value) {
  for (const Named<Enum>& row : table) {
    if (row.name == name) *value = row.value;
  }
}

template <typename Enum, size_t n>
std::string NameOf(Enum value, const std::array<Named<Enum>, n>& table) {
  for (const Named<Enum>& row : table) {
    if (row.value == value) return std::string(row.name);
  }
  return std::string(table.front().name);
}

// The two directions of a field whose name and type are the same on both sides.
#define WEFT_READ(field) \
  if (message.has_##field()) config.field = message.field()
#define WEFT_WRITE(field) message->set_##field(config.field)
#define WEFT_WRITE_OPTIONAL(field) \
  if (config.field) message->set_##field(*config.field)

void ReadRelations(const v1::RunConfig& message, RunConfig* config, ConfigProblems* problems) {
  absl::flat_hash_map<std::string, EntityTypeId> types;
  std::vector<std::string> names;
  for (const EntityConfig& entity : config->entities) {
    types.emplace(entity.name, static_cast<EntityTypeId>(names.size()));
    names.push_back(entity.name);
  }
  for (const v1::RelationConfig& from : message.relations()) {
    const std::string key = ElementKey("relations", config->relations.size());
    RelationConfig& to = config->relations.emplace_back();
    const auto read_type = [&](const std::string& name, bool present, absl::string_view side,
                               EntityTypeId* type) {
      if (const auto found = types.find(name); found != types.end()) {
        *type = found->second;
      } else if (present && !problems->Concern("entities")) {
        problems->Add(MemberKey(key, side),
                      absl::StrCat("unknown entity type \"", name, "\"", Suggestion(name, names)));
      }
    };
    read_type(from.lhs(), from.has_lhs(), "lhs", &to.lhs);
    read_type(from.rhs(), from.has_rhs(), "rhs", &to.rhs);
    to.name = from.name();
    if (from.has_weight()) to.weight = from.weight();
    if (from.has_operator_()) to.operator_name = from.operator_();
    to.all_negs = from.all_negs();
  }
}

// PBG's paths may be URLs of files.
void RemoveFileScheme(RunConfig* config) {
  std::vector<std::string*> paths = {&config->entity_path, &config->checkpoint_path};
  for (std::string& path : config->edge_paths) paths.push_back(&path);
  if (config->init_path) paths.push_back(&*config->init_path);
  for (std::string* path : paths) *path = std::string(absl::StripPrefix(*path, "file://"));
}

}  // namespace

RunConfig RunConfigFromProto(const v1::RunConfig& message, ConfigProblems* problems) {
  RunConfig config;
  for (const v1::EntityConfig& from : message.entities()) {
    EntityConfig& to = config.entities.emplace_back();
    to.name = from.name();
    if (from.has_num_partitions()) to.num_partitions = from.num_partitions();
    to.featurized = from.featurized();
    if (from.has_dimension()) to.dimension = from.dimension();
  }
  ReadRelations(message, &config, problems);
  WEFT_READ(dimension);
  WEFT_READ(init_scale);
  WEFT_READ(max_norm);
  WEFT_READ(global_emb);
  WEFT_READ(comparator);
  WEFT_READ(bias);
  WEFT_READ(loss_fn);
  WEFT_READ(margin);
  WEFT_READ(regularization_coef);
  WEFT_READ(regularizer);
  WEFT_READ(entity_path);
  config.edge_paths.assign(message.edge_paths().begin(), message.edge_paths().end());
  WEFT_READ(checkpoint_path);
  WEFT_READ(init_path);
  RemoveFileScheme(&config);
  WEFT_READ(checkpoint_preservation_interval);
  WEFT_READ(num_epochs);
  WEFT_READ(num_edge_chunks);
  WEFT_READ(max_edges_per_chunk);
  ReadName(message.bucket_order(), kBucketOrders, &config.bucket_order);
  WEFT_READ(workers);
  WEFT_READ(batch_size);
  WEFT_READ(num_batch_negs);
  WEFT_READ(num_uniform_negs);
  WEFT_READ(disable_lhs_negs);
  WEFT_READ(disable_rhs_negs);
  WEFT_READ(lr);
  WEFT_READ(relation_lr);
  WEFT_READ(eval_fraction);
  ReadOrNull(message.has_eval_num_batch_negs(), message.eval_num_batch_negs(),
             &config.eval_num_batch_negs);
  ReadOrNull(message.has_eval_num_uniform_negs(), message.eval_num_uniform_negs(),
             &config.eval_num_uniform_negs);
  WEFT_READ(verbose);
  WEFT_READ(distributed_tree_init_order);
  WEFT_READ(hogwild_delay);
  WEFT_READ(dynamic_relations);
  WEFT_READ(seed);
  WEFT_READ(threads);
  ReadName(message.compute(), kComputes, &config.compute);
  WEFT_READ(resident_partitions);
  WEFT_READ(prefetch);
  WEFT_READ(commit_seconds);
  WEFT_READ(lease_seconds);
  WEFT_READ(stall_timeout);
  WEFT_READ(max_bucket_attempts);
  WEFT_READ(partition_replicas);
  WEFT_READ(store_lost_after);
  WEFT_READ(checkpoint_minutes);
  WEFT_READ(partition_shard_size);
  WEFT_READ(max_param_staleness);
  WEFT_READ(init_tree_wait);
  if (message.has_param_sync()) {
    const v1::ParamSync& from = message.param_sync();
    ParamSyncConfig& to = config.param_sync;
    if (from.has_interval()) to.interval = from.interval();
    if (from.has_max_bytes_per_second()) to.max_bytes_per_second = from.max_bytes_per_second();
  }
  if (message.has_early_stopping()) {
    EarlyStoppingConfig& to = config.early_stopping.emplace();
    ReadName(message.early_stopping().metric(), kMetrics, &to.metric);
    to.patience = message.early_stopping().patience();
  }
  return config;
}

void RunConfigToProto(const RunConfig& config, v1::RunConfig* message) {
  for (const EntityConfig& from : config.entities) {
    v1::EntityConfig& to = *message->add_entities();
    to.set_name(from.name);
    to.set_num_partitions(from.num_partitions);
    to.set_featurized(from.featurized);
    if (from.dimension) to.set_dimension(*from.dimension);
  }
  for (const RelationConfig& from : config.relations) {
    v1::RelationConfig& to = *message->add_relations();
    to.set_name(from.name);
    to.set_lhs(config.entities[from.lhs].name);
    to.set_rhs(config.entities[from.rhs].name);
    to.set_weight(from.weight);
    to.set_operator_(from.operator_name);
    to.set_all_negs(from.all_negs);
  }
  WEFT_WRITE(dimension);
  WEFT_WRITE(init_scale);
  WEFT_WRITE_OPTIONAL(max_norm);
  WEFT_WRITE(global_emb);
  WEFT_WRITE(comparator);
  WEFT_WRITE(bias);
  WEFT_WRITE(loss_fn);
  WEFT_WRITE(margin);
  WEFT_WRITE(regularization_coef);
  WEFT_WRITE(regularizer);
  WEFT_WRITE(entity_path);
  for (const std::string& path : config.edge_paths) message->add_edge_paths(path);
  WEFT_WRITE(checkpoint_path);
  WEFT_WRITE_OPTIONAL(init_path);
  WEFT_WRITE_OPTIONAL(checkpoint_preservation_interval);
  WEFT_WRITE(num_epochs);
  WEFT_WRITE_OPTIONAL(num_edge_chunks);
  WEFT_WRITE(max_edges_per_chunk);
  message->set_bucket_order(NameOf(config.bucket_order, kBucketOrders));
  WEFT_WRITE_OPTIONAL(workers);
  WEFT_WRITE(batch_size);
  WEFT_WRITE(num_batch_negs);
  WEFT_WRITE(num_uniform_negs);
  WEFT_WRITE(disable_lhs_negs);
  WEFT_WRITE(disable_rhs_negs);
  WEFT_WRITE(lr);
  WEFT_WRITE_OPTIONAL(relation_lr);
  WEFT_WRITE(eval_fraction);
  message->set_eval_num_batch_negs(config.eval_num_batch_negs.value_or(kNull));
  message->set_eval_num_uniform_negs(config.eval_num_uniform_negs.value_or(kNull));
  WEFT_WRITE(verbose);
  WEFT_WRITE(distributed_tree_init_order);
  WEFT_WRITE(hogwild_delay);
  WEFT_WRITE(dynamic_relations);
  WEFT_WRITE_OPTIONAL(seed);
  WEFT_WRITE_OPTIONAL(threads);
  message->set_compute(NameOf(config.compute, kComputes));
  WEFT_WRITE(resident_partitions);
  WEFT_WRITE(prefetch);
  WEFT_WRITE(commit_seconds);
  WEFT_WRITE(lease_seconds);
  WEFT_WRITE(stall_timeout);
  WEFT_WRITE(max_bucket_attempts);
  WEFT_WRITE(partition_replicas);
  WEFT_WRITE(store_lost_after);
  WEFT_WRITE(checkpoint_minutes);
  WEFT_WRITE(partition_shard_size);
  WEFT_WRITE(max_param_staleness);
  WEFT_WRITE(init_tree_wait);
  v1::ParamSync& param_sync = *message->mutable_param_sync();
  param_sync.set_interval(config.param_sync.interval);
  param_sync.set_max_bytes_per_second(config.param_sync.max_bytes_per_second);
  if (config.early_stopping) {
    v1::EarlyStopping& to = *message->mutable_early_stopping();
    to.set_metric(NameOf(config.early_stopping->metric, kMetrics));
    to.set_patience(config.early_stopping->patience);
  }
}

#undef WEFT_READ
#undef WEFT_WRITE
#undef WEFT_WRITE_OPTIONAL

}  // namespace weft
