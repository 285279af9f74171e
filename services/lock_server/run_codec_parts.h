// The parts that the records of a run are made of, to and from messages.
#pragma once

#include "services/common/cluster_types.h"
#include "services/common/run_stats.h"
#include "services/lock_server/run_state.h"
#include "weft/v1/run_state.pb.h"

namespace weft::run_codec {

void Encode(const PassPosition& from, v1::StoredPassPosition* to);
PassPosition Decode(const v1::StoredPassPosition& from);
void Encode(Bucket from, v1::StoredBucket* to);
Bucket Decode(const v1::StoredBucket& from);
void Encode(PartitionKey from, v1::StoredPartition* to);
PartitionKey Decode(const v1::StoredPartition& from);
void Encode(const Stats& from, v1::StoredStats* to);
Stats Decode(const v1::StoredStats& from);
void Encode(const BucketStats& from, v1::StoredBucketStats* to);
BucketStats Decode(const v1::StoredBucketStats& from);
void Encode(const TrainingFailure& from, v1::StoredFailure* to);
TrainingFailure Decode(const v1::StoredFailure& from);
void Encode(const RunShape& from, v1::StoredRunShape* to);
RunShape Decode(const v1::StoredRunShape& from);
void Encode(const EarlyStoppingState& from, v1::StoredEarlyStopping* to);
EarlyStoppingState Decode(const v1::StoredEarlyStopping& from);
void Encode(const DoneBucket& from, v1::StoredDoneBucket* to);
DoneBucket Decode(const v1::StoredDoneBucket& from);
void Encode(const ServerRecord& from, v1::StoredServer* to);
ServerRecord Decode(const v1::StoredServer& from);
void Encode(const Place& from, v1::StoredPlace* to);
Place Decode(const v1::StoredPlace& from);
void Encode(const VersionInfo& from, v1::StoredVersionPlaces* to);
VersionInfo Decode(const v1::StoredVersionPlaces& from);
void Encode(const Manifest& from, v1::StoredManifest* to);
Manifest Decode(const v1::StoredManifest& from);
void Encode(const EdgeImport& from, v1::StoredEdgeImport* to);
EdgeImport Decode(const v1::StoredEdgeImport& from);
void Encode(const CheckpointPush& from, v1::StoredPush* to);
CheckpointPush Decode(const v1::StoredPush& from);
void Encode(Token token, const GrantRecord& from, v1::StoredGrant* to);
GrantRecord Decode(const v1::StoredGrant& from);
// Without its live grants.
void Encode(SessionId id, const SessionRecord& from, v1::StoredSession* to);
SessionRecord Decode(const v1::StoredSession& from);

}  // namespace weft::run_codec
