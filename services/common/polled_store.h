// PolledStore is a store as the polling of the lock server sees it (rpc/store_process.h): one poll
// after the other, each of context, Report, the call, Take.
//
// Thread-safety: these methods by one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/common/cluster_types.h"
#include "services/common/store_sync.h"
#include "services/common/store_sync_client.h"

namespace weft {

class PolledStore {
 public:
  virtual ~PolledStore() = default;

  virtual RunContext context() const = 0;  // of the calls to the lock server
  virtual StoreReport Report() = 0;
  virtual uint64_t known_revision() const = 0;

  // What the last report said has arrived; does what the answer says.
  // Errors: Unavailable (an answer of an earlier life of the lock server; nothing was taken). All
  // others mean that this process should end: FailedPrecondition (this store belongs to another
  // run), InvalidArgument (a configuration that cannot be read), those of the disk.
  virtual absl::Status Take(const StoreSyncClient::Answer& answer) = 0;

  // Why this process should end, if it should: what it failed to write is not known, and a restart
  // finds what is.
  virtual absl::Status failure() const = 0;
};

}  // namespace weft
