// Between the messages of lock_service.proto and what the lock server's logic sees.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/store_sync.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/run_state.h"
#include "services/lock_server/run_views.h"
#include "weft/v1/lock_service.pb.h"

namespace weft {

v1::RunInfo MakeRunInfo(const RunState& state);
v1::RunPhase PhaseToProto(RunPhase phase);
v1::ServerList ServerListToProto(const ServerList& servers);

Registration RegistrationFromProto(const v1::RegisterRequest& request);
AcquireRequest AcquireRequestFromProto(const v1::AcquireBucketRequest& request);
ReleaseRequest ReleaseRequestFromProto(const v1::ReleaseBucketRequest& request);
v1::Grant GrantToProto(const Grant& grant);
v1::BucketReport ReportToProto(const BucketStats& stats);

ImportedEdges ImportedEdgesFromProto(const v1::BeginImportRequest& request);
PushedCheckpoint PushedFromProto(const v1::CommitPushRequest& request);

// Errors: InvalidArgument for what no server of this version would send.
absl::StatusOr<StoreReport> StoreReportFromProto(const v1::StoreSyncRequest& request);
// All but context and run.
void InstructionsToProto(const StoreInstructions& instructions, v1::StoreSyncResponse* response);

v1::ManifestInfo ManifestToProto(const ManifestView& manifest);
// All but context, revision and run.
void ViewToProto(const RunView& view, v1::GetRunStateResponse* response);
// All but context, servers and run.
void CheckpointToProto(const CheckpointView& view, v1::GetCheckpointResponse* response);

}  // namespace weft
