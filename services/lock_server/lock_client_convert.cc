#include "services/lock_server/lock_client_convert.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<GrantedPartition> PartitionFromProto(const v1::GrantedPartition& proto) {
  GrantedPartition partition;
  const PartitionVersion base = FromProto(proto.base().version());
  partition.key = base.key;
  partition.base = base.token;
  partition.dirty = proto.dirty();
  switch (proto.source()) {
    case v1::GrantedPartition::SOURCE_KEEP:
      partition.source = GrantedPartition::Source::kKeep;
      return partition;
    case v1::GrantedPartition::SOURCE_READ:
      partition.source = GrantedPartition::Source::kRead;
      return partition;
    case v1::GrantedPartition::SOURCE_INITIALISE:
      partition.source = GrantedPartition::Source::kInitialise;
      return partition;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("granted partition has the unknown source ", proto.source()));
  }
}

}  // namespace

absl::StatusOr<Grant> GrantFromProto(const v1::Grant& proto) {
  Grant grant;
  grant.token = proto.token();
  grant.position = FromProto(proto.position());
  if (grant.token == kInitialToken || proto.buckets().empty()) {
    return absl::InvalidArgumentError("grant without token or buckets");
  }
  for (const v1::GrantedBucket& bucket : proto.buckets()) {
    grant.buckets.push_back({FromProto(bucket.bucket()), bucket.expected_edges()});
  }
  for (const v1::GrantedPartition& partition : proto.partitions()) {
    WEFT_ASSIGN_OR_RETURN(grant.partitions.emplace_back(), PartitionFromProto(partition));
    if (!partition.base().shards().empty()) grant.places.push_back(FromProto(partition.base()));
  }
  for (const v1::VersionInfo& version : proto.hint()) {
    grant.hint.push_back(FromProto(version.version()));
    if (!version.shards().empty()) grant.places.push_back(FromProto(version));
  }
  if (proto.has_hinted_bucket()) grant.hinted_bucket = FromProto(proto.hinted_bucket());
  for (const v1::PartitionKey& key : proto.let_go()) grant.let_go.push_back(FromProto(key));
  for (const v1::VersionInfo& edges : proto.edges()) {
    grant.places.push_back(FromProto(edges));
    grant.edges.push_back(grant.places.back().version);
  }
  grant.store_at.assign(proto.store_at().begin(), proto.store_at().end());
  grant.replicas = static_cast<int>(proto.replicas());
  return grant;
}

absl::StatusOr<ServerList> ServerListFromProto(const v1::ServerList& proto) {
  ServerList servers;
  servers.revision = proto.revision();
  for (const v1::ServerInfo& server : proto.partition_servers()) {
    WEFT_ASSIGN_OR_RETURN(servers.partition_servers.emplace_back(), FromProto(server));
  }
  for (const v1::ServerInfo& server : proto.param_servers()) {
    WEFT_ASSIGN_OR_RETURN(servers.param_servers.emplace_back(), FromProto(server));
  }
  return servers;
}

v1::BucketReport BucketReportToProto(const BucketStats& stats) {
  v1::BucketReport proto;
  *proto.mutable_bucket() = ToProto(stats.bucket);
  proto.set_trained_edges(stats.trained_edges);
  proto.set_held_out_edges(stats.held_out_edges);
  proto.set_train_seconds(stats.train_seconds);
  *proto.mutable_train() = ToProto(stats.train);
  if (stats.eval_before.has_value()) *proto.mutable_eval_before() = ToProto(*stats.eval_before);
  if (stats.eval_after.has_value()) *proto.mutable_eval_after() = ToProto(*stats.eval_after);
  return proto;
}

}  // namespace weft
