#include "services/param_server/param_orders.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {

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
    OrderResult result = Execute(job);
    {
      MutexLock lock(&mu_);
      results_.push_back(std::move(result));
    }
    changed_();
  }
}

OrderResult ParamOrders::Execute(const Job& job) {
  OrderResult result{job.order.id, absl::OkStatus(), std::nullopt};
  if (const auto* restore = std::get_if<RestoreParameters>(&job.order.order)) {
    result.status = Restore(job.run_id, *restore);
  } else if (const auto* cut = std::get_if<CutParameters>(&job.order.order)) {
    result.status = store_->Cut(cut->generation, cut->first_open_pass);
  } else if (const auto* snapshot = std::get_if<StoreSnapshot>(&job.order.order)) {
    absl::StatusOr<VersionInfo> stored = Store(*snapshot);
    result.status = stored.status();
    if (stored.ok()) result.stored = *std::move(stored);
  } else {
    result.status = absl::InvalidArgumentError("an order that is not for a parameter server");
  }
  return result;
}

absl::Status ParamOrders::Restore(const std::string& run_id, const RestoreParameters& order) {
  if (order.num_servers == 0 || order.server_index >= order.num_servers) {
    return absl::InvalidArgumentError("a restore without a place in the order of servers");
  }
  WEFT_ASSIGN_OR_RETURN(SharedLayout layout, initial_->Layout());
  const RowBlockStore::Share share{run_id, order.generation, std::move(layout),
                                   static_cast<int>(order.server_index),
                                   static_cast<int>(order.num_servers)};
  return store_->Install(
      share, order.first_open_pass, [&](RowTable* table) -> absl::StatusOr<int64_t> {
        if (order.snapshots.empty()) {
          WEFT_RETURN_IF_ERROR(initial_->Fill(table));
          return 0;
        }
        SnapshotRestore restore(table);
        for (const VersionInfo& version : order.snapshots) {
          WEFT_ASSIGN_OR_RETURN(const ParamSnapshot snapshot, blobs_->Read(version));
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

absl::StatusOr<VersionInfo> ParamOrders::Store(const StoreSnapshot& order) {
  const std::optional<RowBlockStore::Share> share = store_->share();
  if (!share) return absl::UnavailableError("no parameters are installed");
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<const ParamSnapshot> snapshot,
                        store_->Snapshot(share->generation, order.first_open_pass));
  return blobs_->Store(order, *snapshot);
}

}  // namespace weft
