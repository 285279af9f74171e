// ParamProcess is a parameter server: RowBlockStore over a log that outlives it, the orders of the
// lock server, and snapshots at the partition servers.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "services/common/polled_store.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/param_orders.h"
#include "services/param_server/partition_snapshot_blobs.h"
#include "services/param_server/row_block_store.h"
#include "services/partition_server/blob_transfer.h"
#include "tests/simulation/partition_process.h"
#include "tests/simulation/process.h"
#include "tests/simulation/store_poll.h"

namespace weft::simulation {

// What all trainers share: a row for each bucket, which counts its trained edges.
SharedState MakeCounts(size_t num_buckets);

class ParamProcess : public Process {
 public:
  ParamProcess(World* world, std::string name, double clock_rate, size_t num_buckets,
               const Addresses* addresses);

  void Join(const JoinRequest& request, const Reply<Told<JoinPage>>& reply);
  void Push(const PushRequest& request, const Reply<Told<PushAnswer>>& reply);

  // The machine fails: of what was not synced, some is lost.
  void FailMachine();
  // Adds this server's rows to `counts`, by bucket. False: it is not there, or has nothing.
  bool AddCounts(std::vector<double>* counts);

 protected:
  absl::Status Begin() override;
  void End() override;

 private:
  // Moves snapshots within one step; messages may be lost nevertheless.
  class Transfer : public BlobTransfer {
   public:
    explicit Transfer(ParamProcess* process) : process_(process) {}
    absl::StatusOr<Place> Put(const std::string& address, const ShardName& name,
                              const BlobInfo& info, absl::Span<const uint64_t> checksums,
                              SegmentSource source) override;
    absl::Status Get(const std::string& address, const ShardName& name, const BlobInfo& info,
                     SegmentSink sink) override;

   private:
    absl::StatusOr<PartitionProcess*> Find(const std::string& address);
    RunContext Context() const;

    ParamProcess* const process_;
  };
  class Initial : public InitialParameters {
   public:
    explicit Initial(size_t num_buckets) : num_buckets_(num_buckets) {}
    absl::StatusOr<SharedLayout> Layout() override {
      return SharedLayout::Of(MakeCounts(num_buckets_));
    }
    absl::Status Fill(RowTable*) override { return absl::OkStatus(); }

   private:
    const size_t num_buckets_;
  };
  // As ParamSync and ParamOrders.
  class Sync : public PolledStore {
   public:
    explicit Sync(ParamProcess* process) : process_(process) {}
    RunContext context() const override;
    StoreReport Report() override;
    uint64_t known_revision() const override { return known_revision_; }
    absl::Status Take(const StoreSyncClient::Answer& answer) override;
    absl::Status failure() const override { return process_->store_->failed(); }

   private:
    void Execute(const std::string& run_id, const NumberedOrder& order);

    ParamProcess* const process_;
    uint64_t known_revision_ = 0;
    std::set<uint64_t> under_way_;
    std::vector<OrderResult> results_;
    size_t reported_ = 0;
  };

  const Addresses* const addresses_;
  const StoreId store_id_;
  Incarnation incarnation_ = 0;
  std::string run_id_;  // on the disk
  MemoryPushLog log_{/*keep_unsynced=*/true};

  Transfer transfer_{this};
  Initial initial_;
  std::unique_ptr<RowBlockStore> store_;
  std::unique_ptr<PartitionSnapshotBlobs> blobs_;
  std::unique_ptr<Sync> sync_;
  std::unique_ptr<StorePoll> poll_;
};

}  // namespace weft::simulation
