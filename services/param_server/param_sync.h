// ParamSync is a parameter server's side of its long poll at the lock server: what it reports, and
// what it does with the answers.
//
// Thread-safety: Report and Take by one thread; the others: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/mutex.h"
#include "services/common/polled_store.h"
#include "services/common/store_folder.h"
#include "services/common/store_sync_client.h"
#include "services/param_server/model_initial_parameters.h"
#include "services/param_server/param_orders.h"
#include "services/param_server/partition_snapshot_blobs.h"
#include "services/param_server/row_block_store.h"

namespace weft {

class ParamSync : public PolledStore {
 public:
  // All must outlive this object. `changed` is called, on another thread, when there is something
  // new to report.
  ParamSync(StoreFolder* folder, RowBlockStore* store, PartitionSnapshotBlobs* blobs,
            const ServerInfo& self, std::function<void()> changed);

  RunContext context() const override;
  StoreReport Report() override;
  uint64_t known_revision() const override { return known_revision_; }
  absl::Status Take(const StoreSyncClient::Answer& answer) override;
  absl::Status failure() const override { return store_->failed(); }

 private:
  // What the first answer tells.
  class RunParameters : public InitialParameters {
   public:
    absl::Status Set(const StoreRunInfo& info) ABSL_LOCKS_EXCLUDED(mu_);
    // Errors: Unavailable before the first answer.
    absl::StatusOr<SharedLayout> Layout() override ABSL_LOCKS_EXCLUDED(mu_);
    absl::Status Fill(RowTable* table) override ABSL_LOCKS_EXCLUDED(mu_);

   private:
    absl::StatusOr<std::shared_ptr<ModelInitialParameters>> Model() ABSL_LOCKS_EXCLUDED(mu_);
    Mutex mu_;
    std::shared_ptr<ModelInitialParameters> model_ ABSL_GUARDED_BY(mu_);
  };

  StoreFolder* const folder_;
  RowBlockStore* const store_;
  PartitionSnapshotBlobs* const blobs_;
  const ServerInfo self_;
  uint64_t known_revision_ = 0;
  size_t reported_ = 0;
  RunParameters initial_;
  ParamOrders orders_;
};

}  // namespace weft
