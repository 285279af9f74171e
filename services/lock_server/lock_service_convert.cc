#include "services/lock_server/lock_service_convert.h"

#include <algorithm>
#include <utility>

#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// About 300 bytes each; a message has at most 4 MB.
constexpr size_t kMaxReportedBuckets = 8192;

BucketStats StatsFromProto(const v1::BucketReport& from) {
  BucketStats to;
  to.bucket = FromProto(from.bucket());
  to.trained_edges = from.trained_edges();
  to.held_out_edges = from.held_out_edges();
  to.train_seconds = from.train_seconds();
  to.train = FromProto(from.train());
  if (from.has_eval_before()) to.eval_before = FromProto(from.eval_before());
  if (from.has_eval_after()) to.eval_after = FromProto(from.eval_after());
  return to;
}

VersionInfo PlacesOf(const PartitionVersion& version, const Grant& grant) {
  for (const VersionInfo& info : grant.places) {
    if (info.version == version) return info;
  }
  return {version, {}};
}

struct OrderToProto {
  v1::StoreOrder* to;

  void operator()(const RestoreParameters& from) const {
    v1::RestoreParameters* order = to->mutable_restore_parameters();
    order->set_generation(from.generation);
    for (const VersionInfo& snapshot : from.snapshots) {
      *order->add_snapshots() = ToProto(snapshot);
    }
    order->set_first_open_pass(from.first_open_pass);
    order->set_server_index(from.server_index);
    order->set_num_servers(from.num_servers);
  }
  void operator()(const CutParameters& from) const {
    to->mutable_cut_parameters()->set_generation(from.generation);
    to->mutable_cut_parameters()->set_first_open_pass(from.first_open_pass);
  }
  void operator()(const StoreSnapshot& from) const {
    v1::StoreSnapshot* order = to->mutable_store_snapshot();
    *order->mutable_version() = ToProto(from.version);
    if (from.first_open_pass.has_value()) order->set_first_open_pass(*from.first_open_pass);
    for (const StoreId store : from.store_at) order->add_store_at(store);
    order->set_replicas(static_cast<uint32_t>(from.replicas));
  }
  void operator()(const PersistShards& from) const {
    for (const ShardName& shard : from.shards) {
      *to->mutable_persist_shards()->add_shards() = ToProto(shard);
    }
  }
  void operator()(const CopyShard& from) const {
    *to->mutable_copy_shard()->mutable_version() = ToProto(from.version);
    *to->mutable_copy_shard()->mutable_shard() = ToProto(from.shard);
  }
  void operator()(const VerifyShard& from) const {
    *to->mutable_verify_shard()->mutable_shard() = ToProto(from.shard);
  }
  void operator()(const StoreManifest& from) const {
    *to->mutable_store_manifest()->mutable_version() = ToProto(from.version);
    to->mutable_store_manifest()->set_manifest(from.manifest);
  }
};

}  // namespace

v1::RunInfo MakeRunInfo(const RunState& state) {
  v1::RunInfo info;
  info.set_config_json(state.config_json);
  info.set_config_number(1);
  info.set_seed(state.seed);
  for (const RunShape::EntityType& type : state.shape.entity_types) {
    v1::EntityTypeCounts* counts = info.add_entity_types();
    counts->set_name(type.name);
    for (const int64_t count : type.counts) counts->add_counts(count);
  }
  info.set_num_dynamic_relations(state.shape.num_dynamic_relations);
  for (const EdgePath& path : state.edge_paths) {
    v1::DataSet* data_set = info.add_data_sets();
    data_set->set_edge_path(path.path);
    data_set->set_digest(path.digest);
  }
  info.set_edges_token(state.edge_import.token);
  int64_t largest = 0;
  for (const std::vector<int64_t>& buckets : state.bucket_edges) {
    for (const int64_t edges : buckets) largest = std::max(largest, edges);
  }
  info.set_largest_bucket(largest);
  int64_t largest_bytes = 0;
  for (const auto& [version, shards] : state.places.versions()) {
    if (version.key.entity_type != kEdgesType) continue;
    int64_t bytes = 0;
    for (const ShardInfo& shard : shards) bytes += shard.size_bytes;
    largest_bytes = std::max(largest_bytes, bytes);
  }
  info.set_largest_bucket_bytes(largest_bytes);
  info.set_entities_digest(state.shape.entities_digest);
  return info;
}

v1::RunPhase PhaseToProto(RunPhase phase) { return static_cast<v1::RunPhase>(phase); }

v1::ServerList ServerListToProto(const ServerList& servers) {
  v1::ServerList list;
  list.set_revision(servers.revision);
  for (const ServerInfo& s : servers.partition_servers) *list.add_partition_servers() = ToProto(s);
  for (const ServerInfo& s : servers.param_servers) *list.add_param_servers() = ToProto(s);
  return list;
}

Registration RegistrationFromProto(const v1::RegisterRequest& request) {
  Registration registration;
  registration.incarnation = request.incarnation();
  registration.name = request.name();
  registration.protocol_version = request.protocol_version();
  registration.algorithm_version = request.algorithm_version();
  for (const v1::DataSet& data_set : request.data_sets()) {
    registration.data_sets.push_back({data_set.edge_path(), data_set.digest()});
  }
  return registration;
}

AcquireRequest AcquireRequestFromProto(const v1::AcquireBucketRequest& request) {
  AcquireRequest to;
  to.number = request.number();
  for (const v1::PartitionVersion& copy : request.resident()) {
    to.resident.push_back(FromProto(copy));
  }
  to.wait = absl::Milliseconds(request.wait_ms());
  return to;
}

ReleaseRequest ReleaseRequestFromProto(const v1::ReleaseBucketRequest& request) {
  ReleaseRequest to;
  to.token = request.token();
  for (const v1::VersionInfo& version : request.stored()) {
    to.places.push_back(FromProto(version));
    to.stored.push_back(to.places.back().version.key);
  }
  for (const v1::BucketReport& bucket : request.buckets()) {
    to.buckets.push_back(StatsFromProto(bucket));
  }
  return to;
}

v1::Grant GrantToProto(const Grant& grant) {
  v1::Grant to;
  to.set_token(grant.token);
  *to.mutable_position() = ToProto(grant.position);
  for (const GrantedBucket& bucket : grant.buckets) {
    v1::GrantedBucket* b = to.add_buckets();
    *b->mutable_bucket() = ToProto(bucket.bucket);
    b->set_expected_edges(bucket.expected_edges);
  }
  for (const GrantedPartition& partition : grant.partitions) {
    v1::GrantedPartition* p = to.add_partitions();
    const PartitionVersion base = {partition.key, partition.base};
    const bool read = partition.source == GrantedPartition::Source::kRead;
    *p->mutable_base() = ToProto(read ? PlacesOf(base, grant) : VersionInfo{base, {}});
    switch (partition.source) {
      case GrantedPartition::Source::kKeep:
        p->set_source(v1::GrantedPartition::SOURCE_KEEP);
        break;
      case GrantedPartition::Source::kRead:
        p->set_source(v1::GrantedPartition::SOURCE_READ);
        break;
      case GrantedPartition::Source::kInitialise:
        p->set_source(v1::GrantedPartition::SOURCE_INITIALISE);
        break;
    }
    p->set_dirty(partition.dirty);
  }
  for (const StoreId store : grant.store_at) to.add_store_at(store);
  to.set_replicas(static_cast<uint32_t>(grant.replicas));
  for (const PartitionVersion& hint : grant.hint) *to.add_hint() = ToProto(PlacesOf(hint, grant));
  if (grant.hinted_bucket.has_value()) {
    *to.mutable_hinted_bucket() = ToProto(*grant.hinted_bucket);
  }
  for (const PartitionKey& key : grant.let_go) *to.add_let_go() = ToProto(key);
  for (const PartitionVersion& edges : grant.edges) {
    *to.add_edges() = ToProto(PlacesOf(edges, grant));
  }
  to.set_config_number(1);
  return to;
}

v1::BucketReport ReportToProto(const BucketStats& stats) {
  v1::BucketReport to;
  *to.mutable_bucket() = ToProto(stats.bucket);
  to.set_trained_edges(stats.trained_edges);
  to.set_held_out_edges(stats.held_out_edges);
  to.set_train_seconds(stats.train_seconds);
  *to.mutable_train() = ToProto(stats.train);
  if (stats.eval_before.has_value()) *to.mutable_eval_before() = ToProto(*stats.eval_before);
  if (stats.eval_after.has_value()) *to.mutable_eval_after() = ToProto(*stats.eval_after);
  return to;
}

ImportedEdges ImportedEdgesFromProto(const v1::BeginImportRequest& request) {
  ImportedEdges edges;
  for (const v1::ImportedEdges& path : request.edge_paths()) {
    edges.paths.push_back({path.edge_path(), path.digest(), path.buckets(), path.edges()});
  }
  for (const v1::EntityTypeCounts& type : request.entity_types()) {
    edges.entity_counts.emplace_back(type.counts().begin(), type.counts().end());
  }
  edges.num_dynamic_relations = request.num_dynamic_relations();
  edges.entities_digest = request.entities_digest();
  return edges;
}

PushedCheckpoint PushedFromProto(const v1::CommitPushRequest& request) {
  PushedCheckpoint pushed;
  pushed.request_id = request.request_id();
  pushed.token = request.token();
  pushed.version = request.version();
  pushed.position = FromProto(request.position());
  for (const v1::BucketReport& bucket : request.buckets()) {
    pushed.ended_pass.push_back({request.token(), StatsFromProto(bucket)});
  }
  return pushed;
}

absl::StatusOr<StoreReport> StoreReportFromProto(const v1::StoreSyncRequest& request) {
  StoreReport report;
  WEFT_ASSIGN_OR_RETURN(report.server, FromProto(request.server()));
  report.free_bytes = request.free_bytes();
  report.params.generation = request.params().generation();
  report.params.first_open_pass = request.params().first_open_pass();
  report.params.joined.assign(request.params().joined().begin(), request.params().joined().end());
  for (const v1::OrderResult& result : request.results()) {
    OrderResult to;
    to.order_id = result.order_id();
    to.status = result.code() == 0
                    ? absl::OkStatus()
                    : absl::Status(static_cast<absl::StatusCode>(result.code()), result.message());
    if (result.has_stored()) to.stored = FromProto(result.stored());
    report.results.push_back(std::move(to));
  }
  for (const v1::ShardName& name : request.persisted()) {
    report.persisted.push_back({FromProto(name.version()), name.shard()});
  }
  return report;
}

void InstructionsToProto(const StoreInstructions& instructions, v1::StoreSyncResponse* response) {
  response->set_revision(instructions.revision);
  response->set_phase(PhaseToProto(instructions.phase));
  *response->mutable_servers() = ServerListToProto(instructions.servers);
  if (instructions.keep_list.has_value()) {
    response->mutable_keep_list()->set_high_water(instructions.keep_list->high_water);
    for (const PartitionVersion& version : instructions.keep_list->keep) {
      *response->mutable_keep_list()->add_keep() = ToProto(version);
    }
    for (const Token token : instructions.keep_list->keep_tokens) {
      response->mutable_keep_list()->add_keep_tokens(token);
    }
  }
  for (const NumberedOrder& order : instructions.orders) {
    v1::StoreOrder* to = response->add_orders();
    to->set_order_id(order.id);
    std::visit(OrderToProto{to}, order.order);
  }
  for (const Incarnation session : instructions.ended_sessions) {
    response->add_ended_sessions(session);
  }
}

v1::ManifestInfo ManifestToProto(const ManifestView& manifest) {
  v1::ManifestInfo to;
  to.set_token(manifest.token);
  to.set_generation(manifest.generation);
  to.set_version(manifest.version);
  *to.mutable_position() = ToProto(manifest.position);
  to.set_committed(manifest.state == Manifest::State::kCommitted);
  to.set_preserved(manifest.preserved);
  to.set_best(manifest.best);
  to.set_broken(manifest.state == Manifest::State::kBroken);
  to.set_pins(static_cast<uint32_t>(manifest.pins));
  for (const auto& [name, value] : manifest.metrics) (*to.mutable_metrics())[name] = value;
  return to;
}

void ViewToProto(const RunView& view, v1::GetRunStateResponse* response) {
  response->set_phase(PhaseToProto(view.phase));
  response->set_reason(view.reason);
  *response->mutable_position() = ToProto(view.progress.position);
  response->set_num_epochs(view.progress.num_epochs);
  response->set_buckets(view.progress.buckets);
  response->set_buckets_done(view.progress.buckets_done);
  response->set_edges(view.progress.edges);
  response->set_edges_done(view.progress.edges_done);
  response->set_epoch_edges(view.progress.epoch_edges);
  response->set_stopped_early(view.progress.stopped_early);
  for (const TrainerView& trainer : view.trainers) {
    v1::TrainerInfo* t = response->add_trainers();
    t->set_incarnation(trainer.session);
    t->set_name(trainer.name);
    t->set_lease_left_ms(
        std::chrono::duration_cast<std::chrono::milliseconds>(trainer.lease_left).count());
    t->set_progress(trainer.progress);
    for (const Bucket& bucket : trainer.buckets) *t->add_buckets() = ToProto(bucket);
  }
  *response->mutable_servers() = ServerListToProto(view.servers);
  for (const StoreId store : view.silent_servers) response->add_silent_servers(store);
  for (const ManifestView& manifest : view.manifests) {
    *response->add_manifests() = ManifestToProto(manifest);
  }
  response->set_num_lhs(view.num_lhs);
  response->set_num_rhs(view.num_rhs);
  for (const std::string& path : view.missing_edges) response->add_missing_edges(path);
  response->set_missing_checkpoint(view.missing_checkpoint);
  for (const BucketStatus bucket : view.buckets) {
    response->mutable_bucket_states()->push_back(static_cast<char>(bucket));
  }
}

void CheckpointToProto(const CheckpointView& view, v1::GetCheckpointResponse* response) {
  *response->mutable_manifest() = ManifestToProto(view.manifest);
  for (const VersionInfo& v : view.partitions) *response->add_partitions() = ToProto(v);
  for (const VersionInfo& v : view.snapshots) *response->add_snapshots() = ToProto(v);
  if (view.buckets.size() > kMaxReportedBuckets) return;
  for (const DoneBucket& b : view.buckets) *response->add_buckets() = ReportToProto(b.stats);
}

}  // namespace weft
