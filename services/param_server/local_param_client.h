// LocalParamClient is for the only trainer of a run: its copy of what is shared is the live one,
// and a flush writes it to this machine's disk.
#pragma once

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"
#include "services/param_server/param_client.h"
#include "services/param_server/shared_state_store.h"

namespace weft {

class LocalParamClient : public ParamClient {
 public:
  // `store` must outlive this object.
  explicit LocalParamClient(SharedStateStore* store) : store_(store) {}

  // A second call begins anew with what was flushed last.
  absl::Status Join(SharedState* live) override;
  // Errors: FailedPrecondition before Join; else the store's.
  absl::Status Flush() override;

 private:
  Mutex mu_;
  SharedStateStore* const store_;
  SharedState* live_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace weft
