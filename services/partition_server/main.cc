// weft-partition-server: keeps versions of partitions for a run of a cluster.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "services/common/available_memory.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_store_sync_client.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/rpc/store_process.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/memory_blob_storage.h"
#include "services/partition_server/partition_service_impl.h"
#include "services/partition_server/partition_store.h"
#include "services/partition_server/partition_sync.h"
#include "services/partition_server/rocksdb_blob_storage.h"
#include "services/partition_server/store_orders.h"

namespace weft {
namespace {

constexpr int kWorkers = 8;
constexpr int kBackgroundWorkers = 2;  // orders and copies
constexpr int kHeaps = 2;

struct Flags : StoreProcessFlags {
  int64_t memory_bytes = 0;
};

int64_t MemoryCapacity(const Flags& flags) {
  if (flags.memory_bytes > 0) return flags.memory_bytes;
  return AvailableMemory().value_or(int64_t{1} << 30) / 4 * 3;
}

absl::StatusOr<std::unique_ptr<PartitionStore>> OpenStore(const Flags& flags) {
  // The database's lock keeps other processes away: first.
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RocksDbBlobStorage> storage,
                        RocksDbBlobStorage::Open(flags.data_dir + "/blobs"));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<StoreFolder> identity, StoreFolder::Open(flags.data_dir));
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<BlobStore> disk, BlobStore::Open(std::move(storage), {}));
  std::unique_ptr<BlobStore> memory;
  if (flags.store == "memory") {
    WEFT_ASSIGN_OR_RETURN(
        memory, BlobStore::Open(std::make_unique<MemoryBlobStorage>(MemoryCapacity(flags)), {}));
  }
  return std::make_unique<PartitionStore>(std::move(identity), std::move(disk), std::move(memory));
}

// Tells the lock server what is durable now, so that nothing of it is looked on as lost.
absl::Status TellLast(PartitionSync* sync, StoreSyncClient* lock_server) {
  for (;;) {
    const absl::Status told =
        lock_server
            ->Sync(sync->context(), sync->Report(), sync->known_revision(), absl::ZeroDuration())
            .status();
    if (!absl::IsCancelled(told)) return Annotate(told, "lock server");
  }
}

absl::Status Run(const Flags& flags) {
  // Before gRPC starts threads of its own, which would take the signals.
  ShutdownSignals shutdown;
  WEFT_ASSIGN_OR_RETURN(const SecurityOptions security,
                        MakeSecurityOptions(flags.security, {Role::kPartitionServer}));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Monitoring> monitoring,
                        Monitoring::Start(flags.monitoring, "weft-partition-server",
                                          ServerRole::kPartition, flags.data_dir, security));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcStoreSyncClient> lock_server,
                        GrpcStoreSyncClient::Connect(flags.lock_server, security));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PartitionStore> store, OpenStore(flags));
  ChannelPool channels({.connections = 1, .security = security});
  TransferMetrics transfers;
  GrpcBlobClient::Options fetch;
  fetch.metrics = &transfers;
  GrpcBlobClient fetcher(&channels, store->fence(), fetch);
  StoreOrders orders(store.get(), &fetcher);
  std::unique_ptr<PartitionSync> sync;  // outlives what runs on the pool
  WorkPool background(kBackgroundWorkers);
  WorkPool workers(kWorkers);
  PartitionServiceImpl service(store.get(), &orders, &workers, &background, &transfers,
                               [&lock_server] { lock_server->Interrupt(); });
  const auto measured = monitoring->registry()->Add([&](MetricsPage* page) {
    store->WriteMetrics(page);
    service.WriteMetrics(page);
    transfers.Write(page);
  });
  ServerRunner::Options listen;
  listen.listen = flags.listen;
  listen.security = security;
  listen.metrics = monitoring->server_calls();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ServerRunner> runner,
                        ServerRunner::Start(listen, {&service}));
  const std::string address = flags.advertise.empty() ? runner->address() : flags.advertise;
  sync = std::make_unique<PartitionSync>(store.get(), &orders, &background, address,
                                         [&lock_server] { lock_server->Interrupt(); });
  LogInfo("partition server begins",
          {{"address", address},
           {"store", absl::StrCat(absl::Hex(store->store_id(), absl::kZeroPad16))},
           {"keeps", flags.store}});
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, address + "\n"));
  }
  monitoring->readiness()->SetWaiting("waits for the lock server at " + flags.lock_server);
  absl::Status status = PollLockServer(flags.lock_server, lock_server.get(), sync.get(), &shutdown,
                                       [&runner, &monitoring] {
                                         runner->SetServing(true);
                                         monitoring->readiness()->SetReady();
                                       });
  monitoring->readiness()->SetWaiting("it ends");
  LogInfo("partition server ends");
  runner->Drain();
  if (status.ok() && !store->durable()) {
    status = sync->PersistAll();
    status.Update(TellLast(sync.get(), lock_server.get()));
  }
  return status;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "A partition server of a Weft cluster: keeps versions of embedding partitions.\n\n"
      "  weft-partition-server --lock-server HOST:PORT --data-dir /var/lib/weft");
  AddStoreProcessFlags("rocksdb: all on disk; memory: what checkpoints need is on disk as well",
                       &flags, &app);
  app.add_option("--memory-bytes", flags.memory_bytes,
                 "how much --store memory may hold; default: three quarters of what is free")
      ->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  InitLogging("weft-partition-server", flags.monitoring.log_format);
  // Before there are threads. Each heap of a thread keeps the most that was ever received on it.
  if (flags.store == "memory") mallopt(M_ARENA_MAX, kHeaps);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  LogError("partition server ends", {{"cause", status.message()}});
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
