// PartitionProcess is a partition server: PartitionStore, StoreOrders and PartitionSync over a
// simulated disk, the calls as PartitionServiceImpl makes them, and the poll of the lock server.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "services/partition_server/partition_store.h"
#include "services/partition_server/partition_sync.h"
#include "services/partition_server/store_orders.h"
#include "tests/simulation/blob_disk.h"
#include "tests/simulation/lock_process.h"
#include "tests/simulation/process.h"
#include "tests/simulation/store_poll.h"

namespace weft::simulation {

class PartitionProcess;
class ParamProcess;

// Who is reached where.
struct Addresses {
  LockProcess* lock = nullptr;
  std::map<std::string, PartitionProcess*> partitions;
  std::map<std::string, ParamProcess*> params;
};

// A blob on its way: its segments with their checksums.
struct BlobMessage {
  BlobInfo info;
  std::vector<uint64_t> checksums;
  std::vector<std::string> segments;
};

class PartitionProcess : public Process {
 public:
  PartitionProcess(World* world, std::string name, double clock_rate, bool in_memory,
                   const Addresses* addresses);

  // --- The calls. `name`s are of shards.
  void Put(const RunContext& context, const ShardName& name, const BlobMessage& blob,
           const Reply<Told<Place>>& reply);
  void Get(const RunContext& context, const ShardName& name, const Reply<Told<BlobMessage>>& reply);
  // The same as one step of the caller's, for what does not wait for messages.
  absl::StatusOr<Place> PutNow(const RunContext& context, const ShardName& name,
                               const BlobMessage& blob);
  absl::StatusOr<BlobMessage> GetNow(const RunContext& context, const ShardName& name);

  // Ends as by SIGTERM: what is in memory is made durable first.
  void Terminate();
  // There is room for no more than `spare` bytes; then for as much as at the beginning again.
  void Fill(int64_t spare);
  void MakeRoom();
  // Its machine is lost with its disk: what starts in its place has an empty one, and is another
  // store.
  void LoseDisk();
  bool HasLost(StoreId store) const { return lost_.contains(store); }
  BlobDisk& disk() { return disk_; }
  // What is at `place` now; null: not there.
  const BlobDisk::Blob* At(const Place& place, const ShardName& name) const;
  StoreId store_id() const { return store_id_; }

  bool sweeps_all = false;  // a weakened rule: keep lists without their high-water mark

 protected:
  absl::Status Begin() override;
  void End() override;

 private:
  class Fetcher : public BlobFetcher {
   public:
    explicit Fetcher(PartitionProcess* process) : process_(process) {}
    absl::Status Fetch(const std::string& address, const ShardName& name, const BlobInfo& info,
                       BlobUpload* upload) override;

   private:
    PartitionProcess* const process_;
  };

  absl::StatusOr<std::unique_ptr<BlobUpload>> Stage(const RunContext& context,
                                                    const ShardName& name, const BlobMessage& blob);

  const Addresses* const addresses_;
  const bool in_memory_;
  StoreId store_id_;
  std::set<StoreId> lost_;  // which it was, on disks that are lost
  BlobDisk disk_;
  std::string run_id_;  // on the disk

  BlobDisk memory_;
  std::unique_ptr<PartitionStore> store_;
  Fetcher fetcher_{this};
  EventExecutor executor_{this};
  std::unique_ptr<StoreOrders> orders_;
  std::unique_ptr<PartitionSync> sync_;
  std::unique_ptr<StorePoll> poll_;
  // Uploads between their last segment and their publication.
  std::map<uint64_t, std::unique_ptr<BlobUpload>> uploads_;
  uint64_t last_upload_ = 0;
};

}  // namespace weft::simulation
