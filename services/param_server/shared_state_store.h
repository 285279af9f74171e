// SharedStateStore is where what all trainers share is kept when there is one trainer only, whose
// copy is the live one.
//
// Thread-safety: one call at a time.
#pragma once

#include "absl/status/status.h"
#include "services/param_server/param_client.h"

namespace weft {

class SharedStateStore {
 public:
  virtual ~SharedStateStore() = default;

  // Fills `live`, already of the right names and shapes.
  // Errors: NotFound or DataLoss for what should be there, FailedPrecondition for another shape.
  virtual absl::Status Load(SharedState* live) = 0;

  // Durable when it returns. HOGWILD threads may write `live` meanwhile: each value that is kept
  // is one that it had.
  virtual absl::Status Save(const SharedState& live) = 0;
};

}  // namespace weft
