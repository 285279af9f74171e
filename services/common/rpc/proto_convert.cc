#include "services/common/rpc/proto_convert.h"

#include "absl/strings/str_cat.h"

namespace weft {

v1::RunContext ToProto(const RunContext& context) {
  v1::RunContext proto;
  proto.set_run_id(context.run_id);
  proto.set_term(context.term);
  proto.set_lock_server(context.lock_server);
  if (context.generation.has_value()) proto.set_generation(*context.generation);
  return proto;
}

RunContext FromProto(const v1::RunContext& proto) {
  RunContext context;
  context.run_id = proto.run_id();
  context.term = proto.term();
  context.lock_server = proto.lock_server();
  if (proto.has_generation()) context.generation = proto.generation();
  return context;
}

v1::Bucket ToProto(Bucket bucket) {
  v1::Bucket proto;
  proto.set_lhs(bucket.lhs);
  proto.set_rhs(bucket.rhs);
  return proto;
}

Bucket FromProto(const v1::Bucket& proto) { return {proto.lhs(), proto.rhs()}; }

v1::PartitionKey ToProto(PartitionKey key) {
  v1::PartitionKey proto;
  proto.set_entity_type(key.entity_type);
  proto.set_partition(key.partition);
  return proto;
}

PartitionKey FromProto(const v1::PartitionKey& proto) {
  return {proto.entity_type(), proto.partition()};
}

v1::PartitionVersion ToProto(const PartitionVersion& version) {
  v1::PartitionVersion proto;
  *proto.mutable_key() = ToProto(version.key);
  proto.set_token(version.token);
  return proto;
}

PartitionVersion FromProto(const v1::PartitionVersion& proto) {
  return {FromProto(proto.key()), proto.token()};
}

v1::PassPosition ToProto(const PassPosition& position) {
  v1::PassPosition proto;
  proto.set_pass_id(position.pass);
  proto.set_epoch(position.epoch);
  proto.set_edge_path(position.edge_path);
  proto.set_edge_chunk(position.edge_chunk);
  proto.set_num_edge_chunks(position.num_edge_chunks);
  return proto;
}

PassPosition FromProto(const v1::PassPosition& proto) {
  return {proto.pass_id(), proto.epoch(), proto.edge_path(), proto.edge_chunk(),
          proto.num_edge_chunks()};
}

v1::Place ToProto(const Place& place) {
  v1::Place proto;
  proto.set_store_id(place.store_id);
  proto.set_incarnation(place.incarnation);
  return proto;
}

Place FromProto(const v1::Place& proto) { return {proto.store_id(), proto.incarnation()}; }

v1::ShardInfo ToProto(const ShardInfo& shard) {
  v1::ShardInfo proto;
  proto.set_shard(shard.shard);
  proto.set_first_row(shard.first_row);
  proto.set_num_rows(shard.num_rows);
  proto.set_size_bytes(shard.size_bytes);
  proto.set_xxh3(shard.xxh3);
  for (const Place& place : shard.places) *proto.add_places() = ToProto(place);
  return proto;
}

ShardInfo FromProto(const v1::ShardInfo& proto) {
  ShardInfo shard;
  shard.shard = proto.shard();
  shard.first_row = proto.first_row();
  shard.num_rows = proto.num_rows();
  shard.size_bytes = proto.size_bytes();
  shard.xxh3 = proto.xxh3();
  for (const v1::Place& place : proto.places()) shard.places.push_back(FromProto(place));
  return shard;
}

v1::ShardName ToProto(const ShardName& name) {
  v1::ShardName proto;
  *proto.mutable_version() = ToProto(name.version);
  proto.set_shard(name.shard);
  return proto;
}

ShardName FromProto(const v1::ShardName& name) { return {FromProto(name.version()), name.shard()}; }

v1::VersionInfo ToProto(const VersionInfo& version) {
  v1::VersionInfo proto;
  *proto.mutable_version() = ToProto(version.version);
  for (const ShardInfo& shard : version.shards) *proto.add_shards() = ToProto(shard);
  return proto;
}

VersionInfo FromProto(const v1::VersionInfo& proto) {
  VersionInfo version;
  version.version = FromProto(proto.version());
  for (const v1::ShardInfo& shard : proto.shards()) version.shards.push_back(FromProto(shard));
  return version;
}

v1::ServerInfo ToProto(const ServerInfo& server) {
  v1::ServerInfo proto;
  proto.set_role(static_cast<v1::ServerRole>(server.role));
  proto.set_store_id(server.store_id);
  proto.set_incarnation(server.incarnation);
  proto.set_address(server.address);
  proto.set_durable(server.durable);
  return proto;
}

absl::StatusOr<ServerInfo> FromProto(const v1::ServerInfo& proto) {
  ServerInfo server;
  switch (proto.role()) {
    case v1::SERVER_ROLE_LOCK:
    case v1::SERVER_ROLE_PARTITION:
    case v1::SERVER_ROLE_PARAM:
    case v1::SERVER_ROLE_TRAINER:
      server.role = static_cast<ServerRole>(proto.role());
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown server role ", static_cast<int>(proto.role())));
  }
  if (proto.store_id() == 0 || proto.incarnation() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(RoleName(server.role), " at ", proto.address(),
                                                   ": store id and incarnation must not be 0"));
  }
  server.store_id = proto.store_id();
  server.incarnation = proto.incarnation();
  server.address = proto.address();
  server.durable = proto.durable();
  return server;
}

v1::Stats ToProto(const Stats& stats) {
  v1::Stats proto;
  proto.set_count(stats.count);
  proto.mutable_metrics()->insert(stats.metrics.begin(), stats.metrics.end());
  return proto;
}

Stats FromProto(const v1::Stats& proto) {
  Stats stats;
  stats.count = proto.count();
  stats.metrics.insert(proto.metrics().begin(), proto.metrics().end());
  return stats;
}

}  // namespace weft
