// Between what a trainer sees (lock_client.h) and what it sends to and gets from the lock server.
#pragma once

#include "absl/status/statusor.h"
#include "services/common/store_sync.h"
#include "services/lock_server/lock_client.h"
#include "weft/v1/lock_service.pb.h"

namespace weft {

// Errors: InvalidArgument for what no lock server of this version would send.
absl::StatusOr<Grant> GrantFromProto(const v1::Grant& proto);
absl::StatusOr<ServerList> ServerListFromProto(const v1::ServerList& proto);

v1::BucketReport BucketReportToProto(const BucketStats& stats);

}  // namespace weft
