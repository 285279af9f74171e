#include "services/lock_server/run_codec.h"

#include <google/protobuf/message.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/status_macros.h"
#include "weft/v1/run_state.pb.h"

namespace weft {
namespace {

constexpr uint32_t kFormat = 1;

void Encode(const PassPosition& from, v1::StoredPassPosition* to) {
  to->set_pass_id(from.pass);
  to->set_epoch(from.epoch);
  to->set_edge_path(from.edge_path);
  to->set_edge_chunk(from.edge_chunk);
  to->set_num_edge_chunks(from.num_edge_chunks);
}

PassPosition Decode(const v1::StoredPassPosition& from) {
  PassPosition to;
  to.pass = from.pass_id();
  to.epoch = from.epoch();
  to.edge_path = from.edge_path();
  to.edge_chunk = from.edge_chunk();
  to.num_edge_chunks = from.num_edge_chunks();
  return to;
}

void Encode(Bucket from, v1::StoredBucket* to) {
  to->set_lhs(from.lhs);
  to->set_rhs(from.rhs);
}

Bucket Decode(const v1::StoredBucket& from) { return {from.lhs(), from.rhs()}; }

void Encode(PartitionKey from, v1::StoredPartition* to) {
  to->set_entity_type(from.entity_type);
  to->set_partition(from.partition);
}

PartitionKey Decode(const v1::StoredPartition& from) {
  return {from.entity_type(), from.partition()};
}

void Encode(const Stats& from, v1::StoredStats* to) {
  to->set_count(from.count);
  for (const auto& [name, value] : from.metrics) (*to->mutable_metrics())[name] = value;
}

Stats Decode(const v1::StoredStats& from) {
  Stats to;
  to.count = from.count();
  to.metrics.insert(from.metrics().begin(), from.metrics().end());
  return to;
}

void Encode(const BucketStats& from, v1::StoredBucketStats* to) {
  Encode(from.bucket, to->mutable_bucket());
  to->set_trained_edges(from.trained_edges);
  to->set_held_out_edges(from.held_out_edges);
  to->set_train_seconds(from.train_seconds);
  Encode(from.train, to->mutable_train());
  if (from.eval_before.has_value()) Encode(*from.eval_before, to->mutable_eval_before());
  if (from.eval_after.has_value()) Encode(*from.eval_after, to->mutable_eval_after());
}

BucketStats Decode(const v1::StoredBucketStats& from) {
  BucketStats to;
  to.bucket = Decode(from.bucket());
  to.trained_edges = from.trained_edges();
  to.held_out_edges = from.held_out_edges();
  to.train_seconds = from.train_seconds();
  to.train = Decode(from.train());
  if (from.has_eval_before()) to.eval_before = Decode(from.eval_before());
  if (from.has_eval_after()) to.eval_after = Decode(from.eval_after());
  return to;
}

void Encode(const TrainingFailure& from, v1::StoredFailure* to) {
  Encode(from.bucket, to->mutable_bucket());
  to->set_reason(from.reason);
}

TrainingFailure Decode(const v1::StoredFailure& from) {
  return {Decode(from.bucket()), from.reason()};
}

void Encode(const RunShape& from, v1::StoredRunShape* to) {
  for (const RunShape::EntityType& type : from.entity_types) {
    v1::StoredEntityType* t = to->add_entity_types();
    t->set_name(type.name);
    t->set_dimension(type.dimension);
    for (const int64_t count : type.counts) t->add_counts(count);
    t->set_num_partitions(type.num_partitions);
  }
  for (const RunShape::Relation& relation : from.relations) {
    v1::StoredRelation* r = to->add_relations();
    r->set_name(relation.name);
    r->set_lhs(relation.lhs);
    r->set_rhs(relation.rhs);
    r->set_operator_name(relation.operator_name);
  }
  to->set_dynamic_relations(from.dynamic_relations);
  to->set_num_dynamic_relations(from.num_dynamic_relations);
  to->set_global_embeddings(from.global_embeddings);
  to->set_entities_digest(from.entities_digest);
}

RunShape Decode(const v1::StoredRunShape& from) {
  RunShape to;
  for (const v1::StoredEntityType& type : from.entity_types()) {
    to.entity_types.push_back({type.name(),
                               type.dimension(),
                               {type.counts().begin(), type.counts().end()},
                               type.num_partitions()});
  }
  for (const v1::StoredRelation& r : from.relations()) {
    to.relations.push_back({r.name(), r.lhs(), r.rhs(), r.operator_name()});
  }
  to.dynamic_relations = from.dynamic_relations();
  to.num_dynamic_relations = from.num_dynamic_relations();
  to.global_embeddings = from.global_embeddings();
  to.entities_digest = from.entities_digest();
  return to;
}

void Encode(const EarlyStoppingState& from, v1::StoredEarlyStopping* to) {
  to->set_epoch_first_version(from.epoch_first_version);
  to->set_weighted_sum(from.weighted_sum);
  to->set_weight(from.weight);
  if (from.best_value.has_value()) to->set_best_value(*from.best_value);
  to->set_best_version(from.best_version);
  to->set_best_epoch(from.best_epoch);
  to->set_epochs_since_best(from.epochs_since_best);
}

EarlyStoppingState Decode(const v1::StoredEarlyStopping& from) {
  EarlyStoppingState to;
  to.epoch_first_version = from.epoch_first_version();
  to.weighted_sum = from.weighted_sum();
  to.weight = from.weight();
  if (from.has_best_value()) to.best_value = from.best_value();
  to.best_version = from.best_version();
  to.best_epoch = from.best_epoch();
  to.epochs_since_best = from.epochs_since_best();
  return to;
}

void Encode(const RunState& from, v1::RunRecord* record) {
  v1::StoredRunState* to = record->mutable_state();
  to->set_format(kFormat);
  to->set_run_id(from.run_id);
  to->set_seed(from.seed);
  to->set_term(from.term);
  Encode(from.shape, to->mutable_shape());
  for (const EdgePath& path : from.edge_paths) {
    v1::StoredEdgePath* p = to->add_edge_paths();
    p->set_path(path.path);
    p->set_digest(path.digest);
  }
  Encode(from.position, to->mutable_position());
  for (const DoneBucket& bucket : from.done) {
    v1::StoredDoneBucket* d = to->add_done();
    d->set_token(bucket.token);
    Encode(bucket.stats, d->mutable_stats());
  }
  for (const PartitionKey& key : from.versions.keys()) {
    const Token current = from.versions.current(key);
    const Token committed = from.versions.committed(key);
    if (current == kInitialToken && committed == kInitialToken) continue;
    v1::StoredVersion* version = to->add_versions();
    Encode(key, version->mutable_partition());
    version->set_current(current);
    version->set_committed(committed);
  }
  Encode(from.early_stopping, to->mutable_early_stopping());
  for (const int64_t version : from.obsolete_versions) to->add_obsolete_versions(version);
  if (from.failure.has_value()) Encode(*from.failure, to->mutable_failure());
}

absl::StatusOr<RunRecord> Decode(const v1::StoredRunState& from) {
  if (from.format() != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has format ", from.format(), ", but this program knows format ", kFormat, " only"));
  }
  RunState to;
  to.run_id = from.run_id();
  to.seed = from.seed();
  to.term = from.term();
  to.shape = Decode(from.shape());
  for (const v1::StoredEdgePath& path : from.edge_paths()) {
    to.edge_paths.push_back({path.path(), path.digest()});
  }
  to.position = Decode(from.position());
  for (const v1::StoredDoneBucket& bucket : from.done()) {
    to.done.push_back({bucket.token(), Decode(bucket.stats())});
  }
  std::vector<int> num_partitions;
  for (const RunShape::EntityType& type : to.shape.entity_types) {
    num_partitions.push_back(type.num_partitions);
  }
  to.versions = VersionTable(num_partitions);
  for (const v1::StoredVersion& version : from.versions()) {
    const PartitionKey key = Decode(version.partition());
    if (!to.versions.Has(key)) return absl::DataLossError("has a version of no partition");
    to.versions.SetCurrent(key, version.current());
    to.versions.SetCommitted(key, version.committed());
  }
  to.early_stopping = Decode(from.early_stopping());
  to.obsolete_versions.assign(from.obsolete_versions().begin(), from.obsolete_versions().end());
  if (from.has_failure()) to.failure = Decode(from.failure());
  return RunRecord(std::move(to));
}

void Encode(const GrantReleased& from, v1::RunRecord* record) {
  v1::StoredGrantReleased* to = record->mutable_released();
  to->set_token(from.token);
  for (const PartitionKey& key : from.stored) Encode(key, to->add_stored());
  for (const BucketStats& bucket : from.buckets) Encode(bucket, to->add_buckets());
}

GrantReleased Decode(const v1::StoredGrantReleased& from) {
  GrantReleased to;
  to.token = from.token();
  for (const v1::StoredPartition& key : from.stored()) to.stored.push_back(Decode(key));
  for (const v1::StoredBucketStats& bucket : from.buckets()) to.buckets.push_back(Decode(bucket));
  return to;
}

void Encode(const RunFailed& from, v1::RunRecord* record) {
  Encode(from.failure, record->mutable_failed()->mutable_failure());
}

}  // namespace

std::string EncodeRecord(const RunRecord& record) {
  v1::RunRecord message;
  std::visit([&](const auto& r) { Encode(r, &message); }, record);
  std::string bytes;
  const bool ok = message.SerializeToString(&bytes);
  WEFT_CHECK(ok);
  return bytes;
}

absl::StatusOr<RunRecord> DecodeRecord(absl::string_view bytes) {
  v1::RunRecord message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("cannot be parsed");
  }
  switch (message.record_case()) {
    case v1::RunRecord::kState:
      return Decode(message.state());
    case v1::RunRecord::kReleased:
      return RunRecord(Decode(message.released()));
    case v1::RunRecord::kFailed:
      return RunRecord(RunFailed{Decode(message.failed().failure())});
    case v1::RunRecord::RECORD_NOT_SET:
      break;
  }
  return absl::DataLossError("is of an unknown kind");
}

}  // namespace weft
