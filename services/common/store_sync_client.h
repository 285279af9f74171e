// StoreSyncClient is how partition and parameter servers talk to the lock server: one long poll
// after the other (StoreSync in proto/weft/v1/lock_service.proto has the rules).
//
// Errors: FailedPrecondition (another run, or a retired store: this server cannot serve), Aborted
// (a newer incarnation of this store has registered: this process ends), Unavailable,
// DeadlineExceeded (the same call again), Cancelled (interrupted: call again with what is new).
// Thread-safety: Sync by one thread at a time; Interrupt from any.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/cluster_types.h"
#include "services/common/store_sync.h"

namespace weft {

class StoreSyncClient {
 public:
  struct Answer {
    RunContext context;
    StoreInstructions instructions;
    std::optional<StoreRunInfo> run = std::nullopt;  // at the first call of an incarnation
  };

  virtual ~StoreSyncClient() = default;

  // Waits up to `wait` while there is nothing newer than `known_revision` (0: at the first call).
  virtual absl::StatusOr<Answer> Sync(const RunContext& context, const StoreReport& report,
                                      uint64_t known_revision, absl::Duration wait) = 0;

  // There is something new to report: ends the call that waits, or the next one, with Cancelled.
  virtual void Interrupt() = 0;
};

}  // namespace weft
