// Brings a committed version of a cluster's run into a checkpoint folder in PBG's layout: every
// file anew, data first, then the pointer, by rename. The version is pinned meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/rpc/credentials.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::cli {

struct PullOptions {
  std::string folder;   // empty: the run's checkpoint_path
  int64_t version = 0;  // 0: the newest
  SecurityOptions security;
  // Told of each file that is written; may be null.
  std::function<void(const std::string& file)> on_file;
};

struct PulledCheckpoint {
  int64_t version = 0;
  std::string folder;
  int epochs = 0;  // that are complete
  int64_t files = 0;
};

// Errors: NotFound (no such version, or none is committed yet); those of the servers, and of
// writing. FailedPrecondition when another process writes to the folder.
absl::StatusOr<PulledCheckpoint> PullCheckpoint(GrpcOperatorClient* lock_server,
                                                const PullOptions& options);

}  // namespace weft::cli
