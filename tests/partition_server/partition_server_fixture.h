// TestPartitionServer is a partition server in this process, on a free port of the loopback.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/run_fence.h"
#include "services/common/transfer_metrics.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/memory_blob_storage.h"
#include "services/partition_server/partition_service_impl.h"
#include "services/partition_server/partition_store.h"
#include "services/partition_server/rocksdb_blob_storage.h"
#include "services/partition_server/store_orders.h"
#include "tests/partition_server/failing_blob_storage.h"

namespace weft::testing {

inline const std::string kRunId(32, 'a');
inline const RunContext kContext = {kRunId, 3, 99, std::nullopt};

class TestPartitionServer {
 public:
  enum class Keep { kMemory, kDisk };

  TestPartitionServer(const std::string& folder, Keep keep, bool registered = true)
      : faults(std::make_shared<Faults>()),
        store(MakeStore(folder, keep, faults)),
        fetcher(&channels, &fence, {}),
        orders(&store, &fetcher),
        service(&store, &orders, &workers, &background, &transfers, [this] { failed = true; }) {
    if (registered) WEFT_CHECK(store.Registered(kContext).ok());
    auto started = ServerRunner::Start({}, {&service});
    WEFT_CHECK(started.ok());
    runner = *std::move(started);
  }
  ~TestPartitionServer() { runner->Drain(); }

  const std::string& address() const { return runner->address(); }
  ServerInfo info() const {
    return {ServerRole::kPartition, store.store_id(), store.incarnation(), address(),
            store.durable()};
  }

  const std::shared_ptr<Faults> faults;  // of what is kept in memory
  PartitionStore store;
  WorkPool workers{4};
  WorkPool background{1};
  ChannelPool channels{{}};
  TransferMetrics transfers;
  std::atomic<bool> failed = false;  // it has said that it can write no more
  RunFence fence{kContext};
  GrpcBlobClient fetcher;
  StoreOrders orders;
  PartitionServiceImpl service;
  std::unique_ptr<ServerRunner> runner;

 private:
  static PartitionStore MakeStore(const std::string& folder, Keep keep,
                                  const std::shared_ptr<const Faults>& faults) {
    auto identity = StoreFolder::Open(folder);
    auto disk = RocksDbBlobStorage::Open(folder + "/blobs");
    WEFT_CHECK(identity.ok() && disk.ok());
    std::unique_ptr<BlobStore> memory;
    if (keep == Keep::kMemory) {
      auto storage = std::make_unique<MemoryBlobStorage>(int64_t{1} << 32);
      memory =
          *BlobStore::Open(std::make_unique<FailingBlobStorage>(std::move(storage), faults), {});
    }
    return PartitionStore(*std::move(identity), *BlobStore::Open(*std::move(disk), {}),
                          std::move(memory));
  }
};

}  // namespace weft::testing
