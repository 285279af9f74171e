// Brings a checkpoint in PBG's layout to a cluster, whose run goes on from it: partitions and what
// trainers share are stored at partition servers, then the lock server is told, in one step.
//
// Whatever is interrupted, the run is what it was. The same folder again goes on where it was, or
// is told that the run has it. Everything that a file's header can say is checked before anything
// is stored; that tables are finite, and what their checksums say, when they are read to be sent.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/retry.h"
#include "services/common/rpc/credentials.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::cli {

struct PushOptions {
  std::string folder;
  // Embeddings and parameters only, as init_path has it: the run begins with them. Types that the
  // checkpoint does not have begin as in any run.
  bool beginning = false;
  SecurityOptions security;
  RetryOptions retry;
  // Told what is different from what one may expect; may be null.
  std::function<void(const std::string& note)> on_note;
  // Told of partitions that have been brought, of all; may be null.
  std::function<void(int64_t done, int64_t all)> on_progress;
};

struct PushedVersion {
  int64_t version = 0;   // of the folder
  bool already = false;  // the run had gone on from it before
  int64_t partitions = 0;
  int64_t bytes = 0;
};

// `cancel`: ends waits with Cancelled.
// Errors: NotFound (no checkpoint there), DataLoss (damaged, or not finite), FailedPrecondition (it
// does not fit the run: names each key with both values; or the run is not paused), Aborted
// (another push has taken the place of this one); of storing (PartitionTransfer::Store).
absl::StatusOr<PushedVersion> PushCheckpoint(GrpcOperatorClient* lock_server,
                                             const PushOptions& options, CancelFlag* cancel);

}  // namespace weft::cli
