// Brings back the run of a lock server whose folder is lost, from the manifests that its partition
// servers keep: the newest one that can be read.
//
// The run goes on from that manifest, in a term and a generation that are higher than any that was:
// what came after it is lost, and nobody who was at work may go on with it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/retry.h"
#include "services/common/rpc/credentials.h"
#include "services/lock_server/run_state.h"

namespace weft {

// `addresses`: of the partition servers; of all of them, as each may have the newest manifest.
// Errors: NotFound (none of them has a manifest that can be read), FailedPrecondition (they belong
// to different runs), Unavailable (one does not answer, with its address).
absl::StatusOr<RunState> RecoverRun(const std::vector<std::string>& addresses,
                                    const SecurityOptions& security, const RetryOptions& retry);

}  // namespace weft
