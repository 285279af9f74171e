// Brings the edges of an import to a cluster whose configuration has edge_paths "cluster://NAME".
//
// On the importer's machine they lie in entity_path/edges/NAME; there `weft import` writes them,
// and from there they are read to be brought. What was brought before, by an import that was
// killed, is found at the servers and not sent again.
//
// Thread-safety: UploadEdges may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "services/common/retry.h"
#include "services/common/run_config.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::cli {

// The configuration with the folders of this machine in place of the cluster's names.
RunConfig WithLocalEdges(RunConfig config);

struct EdgeUpload {
  bool already = false;  // the cluster had them; nothing was sent
  int64_t buckets = 0;   // with edges
  int64_t edges = 0;
  int64_t bytes = 0;
};

struct EdgeUploadOptions {
  SecurityOptions security;
  RetryOptions retry;
  // Told of edges that have been brought, of all; may be null.
  std::function<void(int64_t edges, int64_t all_edges)> on_progress;
};

// `config`: with its cluster's names. `cancel`: ends waits with Cancelled.
// Errors: of reading the import (FailedPrecondition, NotFound, DataLoss); AlreadyExists (the run
// has other edges), FailedPrecondition (it has another configuration, or edges in folders), Aborted
// (another import has taken the place of this one); of storing (PartitionTransfer::Store).
absl::StatusOr<EdgeUpload> UploadEdges(GrpcOperatorClient* lock_server, const RunConfig& config,
                                       const EdgeUploadOptions& options, CancelFlag* cancel);

}  // namespace weft::cli
