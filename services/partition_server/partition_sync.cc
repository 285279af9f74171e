#include "services/partition_server/partition_sync.h"

#include <utility>
#include <variant>

#include "services/common/status_macros.h"

namespace weft {

PartitionSync::PartitionSync(PartitionStore* store, StoreOrders* orders, Executor* workers,
                             std::string address, std::function<void()> changed)
    : store_(store),
      orders_(orders),
      workers_(workers),
      address_(std::move(address)),
      changed_(std::move(changed)) {}

RunContext PartitionSync::context() const {
  RunContext context = store_->context();
  context.generation.reset();  // blobs are the same in every generation
  return context;
}

absl::Status PartitionSync::failure() const { return store_->write_status(); }

StoreReport PartitionSync::Report() {
  StoreReport report;
  report.server = {ServerRole::kPartition, store_->store_id(), store_->incarnation(), address_,
                   store_->durable()};
  // A store that can write no more has no room.
  if (store_->write_status().ok()) {
    report.free_bytes = static_cast<uint64_t>(store_->FreeBytes());
  }
  MutexLock lock(&mu_);
  report.results = results_;
  report.persisted = persisted_;
  reported_results_ = results_.size();
  reported_persisted_ = persisted_.size();
  return report;
}

uint64_t PartitionSync::known_revision() const {
  MutexLock lock(&mu_);
  return known_revision_;
}

absl::Status PartitionSync::Take(const StoreSyncClient::Answer& answer) {
  WEFT_RETURN_IF_ERROR(store_->Registered(answer.context));
  const StoreInstructions& instructions = answer.instructions;
  std::vector<NumberedOrder> begin;
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < reported_results_; ++i) under_way_.erase(results_[i].order_id);
    results_.erase(results_.begin(), results_.begin() + static_cast<ptrdiff_t>(reported_results_));
    persisted_.erase(persisted_.begin(),
                     persisted_.begin() + static_cast<ptrdiff_t>(reported_persisted_));
    reported_results_ = 0;
    reported_persisted_ = 0;
    known_revision_ = instructions.revision;
    for (const NumberedOrder& order : instructions.orders) {
      if (under_way_.insert(order.id).second) begin.push_back(order);
    }
  }
  if (instructions.keep_list.has_value()) {
    WEFT_RETURN_IF_ERROR(store_->Sweep(*instructions.keep_list).status());
  }
  for (NumberedOrder& order : begin) {
    workers_->Submit(
        [this, order = std::move(order), servers = instructions.servers.partition_servers] {
          Execute(order, servers);
        });
  }
  return absl::OkStatus();
}

void PartitionSync::Execute(const NumberedOrder& order, const std::vector<ServerInfo>& servers) {
  OrderResult result = orders_->Execute(order, servers);
  {
    MutexLock lock(&mu_);
    if (const auto* persist = std::get_if<PersistShards>(&order.order)) {
      for (const ShardName& name : persist->shards) {
        if (store_->PlaceOf(name).incarnation == 0) persisted_.push_back(name);
      }
    }
    results_.push_back(std::move(result));
  }
  changed_();
}

absl::Status PartitionSync::PersistAll() {
  absl::Status status;
  for (const ShardName& name : store_->Passing()) {
    const absl::Status persisted = store_->Persist(name);
    status.Update(persisted);
    if (!persisted.ok()) continue;
    MutexLock lock(&mu_);
    persisted_.push_back(name);
  }
  return status;
}

}  // namespace weft
