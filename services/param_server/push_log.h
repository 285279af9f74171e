// PushLog is a parameter server's disk: an ordered map of byte strings that is written in batches.
//
// A batch is there whole or not at all, and batches are there in the order in which they were
// written: after a crash, some last ones may be missing. What was written survives the death of the
// process (with the rocksdb back end); Sync makes it survive the machine's.
// A failed write or sync ends all further ones (FailedPrecondition): what lies on the disk is then
// not what was meant to, and only a new start knows what it is.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft {

class PushLog {
 public:
  struct Change {
    std::string key;
    std::string_view value;  // borrowed for the call
    bool remove = false;
  };

  virtual ~PushLog() = default;

  // Errors: ResourceExhausted (disk full), Internal, FailedPrecondition after an earlier one.
  virtual absl::Status Write(absl::Span<const Change> changes) = 0;
  // Durable when it returns: all that was written before the call. Errors: as Write.
  virtual absl::Status Sync() = 0;
  // Every key that begins with `prefix` goes; not one batch: a crash may leave some.
  virtual absl::Status RemoveAll(std::string_view prefix) = 0;

  using Visit = absl::FunctionRef<absl::Status(std::string_view key, std::string_view value)>;
  // All keys that begin with `prefix`, in ascending order. Ends at the visitor's first error.
  // Errors: DataLoss, Internal, the visitor's.
  virtual absl::Status Scan(std::string_view prefix, Visit visit) = 0;
};

}  // namespace weft
