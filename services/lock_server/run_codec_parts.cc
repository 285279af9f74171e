#include "services/lock_server/run_codec_parts.h"

#include <utility>

namespace weft::run_codec {

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

void Encode(const DoneBucket& from, v1::StoredDoneBucket* to) {
  to->set_token(from.token);
  Encode(from.stats, to->mutable_stats());
}

DoneBucket Decode(const v1::StoredDoneBucket& from) { return {from.token(), Decode(from.stats())}; }

void Encode(const ServerRecord& from, v1::StoredServer* to) {
  to->set_role(static_cast<uint32_t>(from.info.role));
  to->set_store_id(from.info.store_id);
  to->set_incarnation(from.info.incarnation);
  to->set_address(from.info.address);
  to->set_durable(from.info.durable);
  to->set_retired(from.retired);
}

ServerRecord Decode(const v1::StoredServer& from) {
  ServerRecord to;
  to.info.role = from.role() == static_cast<uint32_t>(ServerRole::kParam) ? ServerRole::kParam
                                                                          : ServerRole::kPartition;
  to.info.store_id = from.store_id();
  to.info.incarnation = from.incarnation();
  to.info.address = from.address();
  to.info.durable = from.durable();
  to.retired = from.retired();
  return to;
}

void Encode(const Place& from, v1::StoredPlace* to) {
  to->set_store_id(from.store_id);
  to->set_incarnation(from.incarnation);
}

Place Decode(const v1::StoredPlace& from) { return {from.store_id(), from.incarnation()}; }

void Encode(const VersionInfo& from, v1::StoredVersionPlaces* to) {
  Encode(from.version.key, to->mutable_partition());
  to->set_token(from.version.token);
  for (const ShardInfo& shard : from.shards) {
    v1::StoredShard* s = to->add_shards();
    s->set_num_rows(shard.num_rows);
    s->set_size_bytes(shard.size_bytes);
    s->set_xxh3(shard.xxh3);
    for (const Place& place : shard.places) Encode(place, s->add_places());
  }
}

VersionInfo Decode(const v1::StoredVersionPlaces& from) {
  VersionInfo to;
  to.version = {Decode(from.partition()), from.token()};
  int64_t rows = 0;
  for (const v1::StoredShard& s : from.shards()) {
    ShardInfo shard;
    shard.shard = static_cast<uint32_t>(to.shards.size());
    shard.first_row = rows;
    shard.num_rows = s.num_rows();
    shard.size_bytes = s.size_bytes();
    shard.xxh3 = s.xxh3();
    for (const v1::StoredPlace& place : s.places()) shard.places.push_back(Decode(place));
    rows += shard.num_rows;
    to.shards.push_back(std::move(shard));
  }
  return to;
}

void Encode(const Manifest& from, v1::StoredManifest* to) {
  to->set_token(from.token);
  to->set_generation(from.generation);
  to->set_version(from.version);
  to->set_state(static_cast<uint32_t>(from.state));
  to->set_preserved(from.preserved);
  Encode(from.position, to->mutable_position());
  for (const DoneBucket& bucket : from.done) Encode(bucket, to->add_done());
  for (const DoneBucket& bucket : from.ended_pass) Encode(bucket, to->add_ended_pass());
  Encode(from.early_stopping, to->mutable_early_stopping());
  for (const PartitionVersion& version : from.versions) {
    v1::StoredPartitionToken* v = to->add_versions();
    Encode(version.key, v->mutable_partition());
    v->set_token(version.token);
  }
  for (const auto& [name, value] : from.metrics) (*to->mutable_metrics())[name] = value;
}

Manifest Decode(const v1::StoredManifest& from) {
  Manifest to;
  to.token = from.token();
  to.generation = from.generation();
  to.version = from.version();
  to.state = from.state() == 1   ? Manifest::State::kPending
             : from.state() == 2 ? Manifest::State::kCommitted
                                 : Manifest::State::kBroken;
  to.preserved = from.preserved();
  to.position = Decode(from.position());
  for (const v1::StoredDoneBucket& bucket : from.done()) to.done.push_back(Decode(bucket));
  for (const v1::StoredDoneBucket& bucket : from.ended_pass()) {
    to.ended_pass.push_back(Decode(bucket));
  }
  to.early_stopping = Decode(from.early_stopping());
  for (const v1::StoredPartitionToken& version : from.versions()) {
    to.versions.push_back({Decode(version.partition()), version.token()});
  }
  to.metrics.insert(from.metrics().begin(), from.metrics().end());
  return to;
}

void Encode(const EdgeImport& from, v1::StoredEdgeImport* to) {
  to->set_token(from.token);
  to->set_complete(from.complete);
  for (const ImportedEdges::Path& path : from.edges.paths) {
    v1::StoredImportedEdges* p = to->add_paths();
    p->set_path(path.path);
    p->set_digest(path.digest);
    p->set_buckets(path.buckets);
    p->set_edges(path.edges);
  }
  for (const std::vector<int64_t>& counts : from.edges.entity_counts) {
    to->add_entity_counts()->mutable_counts()->Add(counts.begin(), counts.end());
  }
  to->set_num_dynamic_relations(from.edges.num_dynamic_relations);
  to->set_entities_digest(from.edges.entities_digest);
}

EdgeImport Decode(const v1::StoredEdgeImport& from) {
  EdgeImport to;
  to.token = from.token();
  to.complete = from.complete();
  for (const v1::StoredImportedEdges& path : from.paths()) {
    to.edges.paths.push_back({path.path(), path.digest(), path.buckets(), path.edges()});
  }
  for (const v1::StoredCounts& counts : from.entity_counts()) {
    to.edges.entity_counts.emplace_back(counts.counts().begin(), counts.counts().end());
  }
  to.edges.num_dynamic_relations = from.num_dynamic_relations();
  to.edges.entities_digest = from.entities_digest();
  return to;
}

void Encode(const CheckpointPush& from, v1::StoredPush* to) {
  to->set_token(from.token);
  to->set_request_id(from.request_id);
}

CheckpointPush Decode(const v1::StoredPush& from) { return {from.token(), from.request_id()}; }

void Encode(Token token, const GrantRecord& from, v1::StoredGrant* to) {
  to->set_token(token);
  to->set_session(from.session);
  for (const Bucket& bucket : from.buckets) Encode(bucket, to->add_buckets());
  for (const GrantRecord::Base& base : from.bases) {
    v1::StoredGrantBase* b = to->add_bases();
    Encode(base.key, b->mutable_partition());
    b->set_token(base.token);
    b->set_source(static_cast<uint32_t>(base.source));
  }
}

GrantRecord Decode(const v1::StoredGrant& from) {
  GrantRecord to;
  to.session = from.session();
  for (const v1::StoredBucket& bucket : from.buckets()) to.buckets.push_back(Decode(bucket));
  for (const v1::StoredGrantBase& base : from.bases()) {
    to.bases.push_back({Decode(base.partition()), base.token(),
                        static_cast<GrantedPartition::Source>(base.source())});
  }
  return to;
}

void Encode(SessionId id, const SessionRecord& from, v1::StoredSession* to) {
  to->set_session(id);
  to->set_name(from.name);
  to->set_number(from.number);
  to->set_granted(from.granted);
  for (const ReleaseOutcome& outcome : from.outcomes) {
    v1::StoredOutcome* o = to->add_outcomes();
    o->set_token(outcome.token);
    o->set_pass_done(outcome.pass_done);
  }
}

SessionRecord Decode(const v1::StoredSession& from) {
  SessionRecord to;
  to.name = from.name();
  to.number = from.number();
  to.granted = from.granted();
  for (const v1::StoredOutcome& o : from.outcomes()) {
    to.outcomes.push_back({o.token(), o.pass_done()});
  }
  return to;
}

}  // namespace weft::run_codec
