// Between the messages of proto/weft/v1/types.proto and the structs that logic uses.
//
// What comes from outside is checked where a value has a range; everything else is the caller's to
// check against what it knows (entity types, partitions).
#pragma once

#include "absl/status/statusor.h"
#include "services/common/cluster_types.h"
#include "services/common/run_stats.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"
#include "weft/v1/types.pb.h"

namespace weft {

v1::RunContext ToProto(const RunContext& context);
RunContext FromProto(const v1::RunContext& context);

v1::Bucket ToProto(Bucket bucket);
Bucket FromProto(const v1::Bucket& bucket);

v1::PartitionKey ToProto(PartitionKey key);
PartitionKey FromProto(const v1::PartitionKey& key);

v1::PartitionVersion ToProto(const PartitionVersion& version);
PartitionVersion FromProto(const v1::PartitionVersion& version);

v1::PassPosition ToProto(const PassPosition& position);
PassPosition FromProto(const v1::PassPosition& position);

v1::Place ToProto(const Place& place);
Place FromProto(const v1::Place& place);

v1::ShardInfo ToProto(const ShardInfo& shard);
ShardInfo FromProto(const v1::ShardInfo& shard);

v1::ShardName ToProto(const ShardName& name);
ShardName FromProto(const v1::ShardName& name);

v1::VersionInfo ToProto(const VersionInfo& version);
VersionInfo FromProto(const v1::VersionInfo& version);

v1::ServerInfo ToProto(const ServerInfo& server);
// Errors: InvalidArgument for an unknown role, or a store id or incarnation of 0.
absl::StatusOr<ServerInfo> FromProto(const v1::ServerInfo& server);

v1::Stats ToProto(const Stats& stats);
Stats FromProto(const v1::Stats& stats);

}  // namespace weft
