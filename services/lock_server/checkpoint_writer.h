// CheckpointWriter makes the files of a run on one machine: what the lock server's logic orders
// when a pass is complete, and what it lets go of. The coordinator decides, this does.
//
// Thread-safety: one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {

class CheckpointWriter {
 public:
  virtual ~CheckpointWriter() = default;

  // What is stored from now on belongs to the pass at `position`.
  virtual void BeginPass(const PassPosition& position) = 0;

  // Errors: FailedPrecondition when one of the versions is not stored.
  virtual absl::Status CheckStored(absl::Span<const PartitionVersion> versions) = 0;

  // Makes the files of pass.version durable and switches readers to it, in this order. Nobody
  // trains meanwhile. After a crash, or an error, it is called again and ends in the same state.
  virtual absl::Status WriteVersion(const CompletePass& pass) = 0;

  // Removes the files of old versions; gives those that are gone, or that are to be kept for ever.
  // What cannot be removed now is asked for again.
  virtual std::vector<int64_t> RemoveVersions(absl::Span<const int64_t> versions) = 0;

  // Deletes what the list does not keep.
  virtual void Sweep(const KeepList& list) = 0;
};

}  // namespace weft
