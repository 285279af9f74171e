#include "services/param_server/local_param_client.h"

#include "services/common/status_macros.h"

namespace weft {

absl::Status LocalParamClient::Join(SharedState* live) {
  MutexLock lock(&mu_);
  WEFT_RETURN_IF_ERROR(store_->Load(live));
  live_ = live;
  return absl::OkStatus();
}

absl::Status LocalParamClient::Flush() {
  MutexLock lock(&mu_);
  if (live_ == nullptr) return absl::FailedPreconditionError("Flush before Join");
  return store_->Save(*live_);
}

}  // namespace weft
