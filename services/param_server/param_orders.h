// ParamOrders does what the lock server orders a parameter server to do, one order after the other
// on a thread of its own, while the exchange goes on: become the server of a generation, cut, store
// a snapshot, end sessions.
//
// It is driven by the answers to StoreSync: Take one, report State and the results with the next.
// An order that is under way, or done and not yet reported, is not begun again.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/mutex.h"
#include "services/common/store_sync.h"
#include "services/param_server/param_snapshot.h"
#include "services/param_server/row_block_store.h"

namespace weft {

// Where snapshots lie: at partition servers.
class SnapshotBlobs {
 public:
  virtual ~SnapshotBlobs() = default;

  // Stores it at `replicas` of `store_at`, the first that take it. Where it lies then.
  // Errors: ResourceExhausted or Unavailable when too few take it.
  virtual absl::StatusOr<VersionInfo> Store(const StoreSnapshot& order,
                                            const ParamSnapshot& snapshot) = 0;
  // Errors: NotFound, DataLoss, Unavailable: from no place.
  virtual absl::StatusOr<ParamSnapshot> Read(const VersionInfo& version) = 0;
};

// What a run begins with.
class InitialParameters {
 public:
  virtual ~InitialParameters() = default;

  virtual absl::StatusOr<SharedLayout> Layout() = 0;
  // Fills all rows of the table; sums are 0.
  virtual absl::Status Fill(RowTable* table) = 0;
};

// Carries out one order, in the caller's thread. Errors, in the result: those of the store and of
// `blobs`; InvalidArgument (not an order for a parameter server).
OrderResult ExecuteParamOrder(RowBlockStore* store, SnapshotBlobs* blobs,
                              InitialParameters* initial, const std::string& run_id,
                              const NumberedOrder& order);

class ParamOrders {
 public:
  // All must outlive this object. `changed` is called when there is something new to report; on the
  // thread of the orders.
  ParamOrders(RowBlockStore* store, SnapshotBlobs* blobs, InitialParameters* initial,
              std::function<void()> changed);
  // Finishes the order under way; what has not begun is dropped.
  ~ParamOrders();

  // Errors: of ending sessions: those of the store's log.
  absl::Status Take(const std::string& run_id, const StoreInstructions& instructions);

  ParamServerState State() const;
  // Results that have not been reported, the oldest first; Reported says that the first `count` now
  // are.
  std::vector<OrderResult> Results() const;
  void Reported(size_t count);

 private:
  struct Job {
    std::string run_id;
    NumberedOrder order;
  };

  void Work();

  RowBlockStore* const store_;
  SnapshotBlobs* const blobs_;
  InitialParameters* const initial_;
  const std::function<void()> changed_;

  mutable Mutex mu_;
  CondVar arrived_;
  std::deque<Job> queue_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> known_ ABSL_GUARDED_BY(mu_);  // queued, under way, or not yet reported
  std::vector<OrderResult> results_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace weft
