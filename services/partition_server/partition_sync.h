// PartitionSync is a partition server's side of its long poll: what it reports, and what it does
// with the answers. Registration, keep lists, orders.
//
// One poll after the other: Report, call, Take. Orders run on the workers; when one is done,
// `changed` says that there is something to report. An order that is under way, or done and not yet
// reported, is not begun again.
//
// Thread-safety: all methods may be called from any thread; Report and Take by one.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/executor.h"
#include "services/common/mutex.h"
#include "services/common/polled_store.h"
#include "services/common/store_sync_client.h"
#include "services/partition_server/partition_store.h"
#include "services/partition_server/store_orders.h"

namespace weft {

class PartitionSync : public PolledStore {
 public:
  // All must outlive this object, which must outlive what runs on the workers. `address`: where
  // this server is reached.
  PartitionSync(PartitionStore* store, StoreOrders* orders, Executor* workers, std::string address,
                std::function<void()> changed);

  RunContext context() const override;
  StoreReport Report() override ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t known_revision() const override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Take(const StoreSyncClient::Answer& answer) override ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status failure() const override;

  // Before the process ends: makes everything durable that would end with it. What it cannot is
  // left out and named by the status.
  absl::Status PersistAll() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Execute(const NumberedOrder& order, const std::vector<ServerInfo>& servers)
      ABSL_LOCKS_EXCLUDED(mu_);

  PartitionStore* const store_;
  StoreOrders* const orders_;
  Executor* const workers_;
  const std::string address_;
  const std::function<void()> changed_;

  mutable Mutex mu_;
  uint64_t known_revision_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<uint64_t> under_way_ ABSL_GUARDED_BY(mu_);  // or done and not yet reported
  std::vector<OrderResult> results_ ABSL_GUARDED_BY(mu_);
  std::vector<ShardName> persisted_ ABSL_GUARDED_BY(mu_);
  // How many of them were in the last report.
  size_t reported_results_ ABSL_GUARDED_BY(mu_) = 0;
  size_t reported_persisted_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weft
