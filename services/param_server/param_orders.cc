#include "services/param_server/param_orders.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

absl::Status Restore(RowBlockStore* store, SnapshotBlobs* blobs, InitialParameters* initial,
                     const std::string& run_id, const RestoreParameters& order) {
  if (order.num_servers == 0 || order.server_index >= order.num_servers) {
    return absl::InvalidArgumentError("a restore without a place in the order of servers");
  }
  WEFT_ASSIGN_OR_RETURN(SharedLayout layout, initial->Layout());
  const RowBlockStore::Share share{run_id, order.generation, std::move(layout),
                                   static_cast<int>(order.server_index),
                                   static_cast<int>(order.num_servers)};
  return store->Install(
      share, order.first_open_pass, [&](RowTable* table) -> absl::StatusOr<int64_t> {
        if (order.snapshots.empty()) {
          WEFT_RETURN_IF_ERROR(initial->Fill(table));
          return 0;
        }
        SnapshotRestore restore(table);
        for (const VersionInfo& version : order.snapshots) {
          WEFT_ASSIGN_OR_RETURN(const ParamSnapshot snapshot, blobs->Read(version));
          if (snapshot.run_id != run_id) {
            return absl::FailedPreconditionError(
                absl::StrCat("a snapshot of run ", snapshot.run_id, ", not of ", run_id));
          }
          WEFT_RETURN_IF_ERROR(restore.Add(snapshot));
        }
        WEFT_RETURN_IF_ERROR(restore.Finish());
        return restore.steps();
      });
}

absl::StatusOr<VersionInfo> Store(RowBlockStore* store, SnapshotBlobs* blobs,
                                  const StoreSnapshot& order) {
  const std::optional<RowBlockStore::Share> share = store->share();
  if (!share) return absl::UnavailableError("no parameters are installed");
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const ParamSnapshot> snapshot,
                        store->Snapshot(share->generation, order.first_open_pass));
  return blobs->Store(order, *snapshot);
}

}  // namespace

OrderResult ExecuteParamOrder(RowBlockStore* store, SnapshotBlobs* blobs,
                              InitialParameters* initial, const std::string& run_id,
                              const NumberedOrder& order) {
  OrderResult result{order.id, absl::OkStatus(), std::nullopt};
  if (const auto* restore = std::get_if<RestoreParameters>(&order.order)) {
    result.status = Restore(store, blobs, initial, run_id, *restore);
  } else if (const auto* cut = std::get_if<CutParameters>(&order.order)) {
    result.status = store->Cut(cut->generation, cut->first_open_pass);
  } else if (const auto* snapshot = std::get_if<StoreSnapshot>(&order.order)) {
    absl::StatusOr<VersionInfo> stored = Store(store, blobs, *snapshot);
    result.status = stored.status();
    if (stored.ok()) result.stored = *std::move(stored);
  } else {
    result.status = absl::InvalidArgumentError("an order that is not for a parameter server");
  }
  return result;
}

ParamOrders::ParamOrders(RowBlockStore* store, SnapshotBlobs* blobs, InitialParameters* initial,
                         std::function<void()> changed)
    : store_(store),
      blobs_(blobs),
      initial_(initial),
      changed_(std::move(changed)),
      thread_([this] { Work(); }) {}

ParamOrders::~ParamOrders() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  arrived_.SignalAll();
  thread_.join();
}

absl::Status ParamOrders::Take(const std::string& run_id, const StoreInstructions& instructions) {
  if (!instructions.ended_sessions.empty()) {
    WEFT_RETURN_IF_ERROR(store_->EndSessions(instructions.ended_sessions));
  }
  MutexLock lock(&mu_);
  for (const NumberedOrder& order : instructions.orders) {
    if (known_.insert(order.id).second) queue_.push_back({run_id, order});
  }
  arrived_.SignalAll();
  return absl::OkStatus();
}

ParamServerState ParamOrders::State() const {
  const std::optional<RowBlockStore::Share> share = store_->share();
  if (!share) return {};
  return {share->generation, store_->first_open_pass(), store_->joined()};
}

std::vector<OrderResult> ParamOrders::Results() const {
  MutexLock lock(&mu_);
  return results_;
}

void ParamOrders::Reported(size_t count) {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < count; ++i) known_.erase(results_[i].order_id);
  results_.erase(results_.begin(), results_.begin() + static_cast<ptrdiff_t>(count));
}

void ParamOrders::Work() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !closing_) arrived_.Wait(&mu_);
      if (closing_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    OrderResult result = ExecuteParamOrder(store_, blobs_, initial_, job.run_id, job.order);
    {
      MutexLock lock(&mu_);
      results_.push_back(std::move(result));
    }
    changed_();
  }
}

}  // namespace weft
