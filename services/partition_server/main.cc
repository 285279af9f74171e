// weft-partition-server: keeps versions of partitions for a run of a cluster.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "services/common/available_memory.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/retry.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_store_sync_client.h"
#include "services/common/rpc/server_runner.h"
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

constexpr absl::Duration kPollWait = absl::Seconds(20);
constexpr int kWorkers = 8;
constexpr int kBackgroundWorkers = 2;  // orders and copies

struct Flags {
  std::string lock_server;
  std::string data_dir;
  std::string store = "rocksdb";
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string address_file;
  int64_t memory_bytes = 0;
  bool insecure = false;
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

// Polls the lock server until the process is to end. Errors: why this server cannot serve.
absl::Status Serve(const Flags& flags, PartitionStore* store, PartitionSync* sync,
                   StoreSyncClient* lock_server, ServerRunner* runner, ShutdownSignals* shutdown) {
  RetryOptions retry;
  retry.patience = absl::InfiniteDuration();
  std::optional<Backoff> backoff;
  while (!shutdown->requested()) {
    const absl::StatusOr<StoreSyncClient::Answer> answer =
        lock_server->Sync(store->context(), sync->Report(), sync->known_revision(), kPollWait);
    // Whatever it did not write is not known: a restart finds what is.
    WEFT_RETURN_IF_ERROR(store->write_status());
    if (answer.ok()) {
      WEFT_RETURN_IF_ERROR(sync->Take(*answer));
      runner->SetServing(true);
      backoff.reset();
      continue;
    }
    if (absl::IsCancelled(answer.status())) continue;
    if (!IsTransient(answer.status()))
      return Annotate(answer.status(), "lock server at " + flags.lock_server);
    if (!backoff.has_value()) {
      backoff.emplace(retry, store->incarnation());
      WEFT_LOG_WARNING("lock server at {}: {}; trying again", flags.lock_server,
                       std::string(answer.status().message()));
    }
    const auto delay = backoff->Next(std::chrono::steady_clock::now());
    shutdown->WaitFor(delay.value_or(retry.max_delay));
  }
  return absl::OkStatus();
}

// Tells the lock server what is durable now, so that nothing of it is looked on as lost.
absl::Status TellLast(PartitionStore* store, PartitionSync* sync, StoreSyncClient* lock_server) {
  for (;;) {
    const absl::Status told =
        lock_server
            ->Sync(store->context(), sync->Report(), sync->known_revision(), absl::ZeroDuration())
            .status();
    if (!absl::IsCancelled(told)) return Annotate(told, "lock server");
  }
}

absl::Status Run(const Flags& flags) {
  const SecurityOptions security = {.allow_plain_text = flags.insecure};
  // Before gRPC starts threads of its own, which would take the signals.
  std::atomic<StoreSyncClient*> polled = nullptr;
  ShutdownSignals shutdown([&polled] {
    StoreSyncClient* const client = polled;
    if (client != nullptr) client->Interrupt();
  });
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcStoreSyncClient> lock_server,
                        GrpcStoreSyncClient::Connect(flags.lock_server, security));
  polled = lock_server.get();
  const absl::Cleanup forget = [&polled] { polled = nullptr; };
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PartitionStore> store, OpenStore(flags));
  ChannelPool channels({.connections = 1, .security = security});
  GrpcBlobClient fetcher(&channels, store->fence(), {});
  StoreOrders orders(store.get(), &fetcher);
  std::unique_ptr<PartitionSync> sync;  // outlives what runs on the pool
  WorkPool background(kBackgroundWorkers);
  WorkPool workers(kWorkers);
  PartitionServiceImpl service(store.get(), &orders, &workers, &background);
  ServerRunner::Options listen;
  listen.listen = flags.listen;
  listen.security = security;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ServerRunner> runner,
                        ServerRunner::Start(listen, {&service}));
  const std::string address = flags.advertise.empty() ? runner->address() : flags.advertise;
  sync = std::make_unique<PartitionSync>(store.get(), &orders, &background, address,
                                         [&lock_server] { lock_server->Interrupt(); });
  WEFT_LOG_INFO("partition server: address={} store={:016x} keeps={}", address, store->store_id(),
                flags.store);
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, address + "\n"));
  }
  absl::Status status =
      Serve(flags, store.get(), sync.get(), lock_server.get(), runner.get(), &shutdown);
  WEFT_LOG_INFO("partition server: ends");
  runner->Drain();
  if (status.ok() && !store->durable()) {
    status = sync->PersistAll();
    status.Update(TellLast(store.get(), sync.get(), lock_server.get()));
  }
  return status;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "A partition server of a Weft cluster: keeps versions of embedding partitions.\n\n"
      "  weft-partition-server --lock-server HOST:PORT --data-dir /var/lib/weft");
  app.add_option("--lock-server", flags.lock_server, "its host:port")->required();
  app.add_option("--data-dir", flags.data_dir, "folder of its own, made if need be")->required();
  app.add_option("--store", flags.store,
                 "rocksdb: all on disk; memory: what checkpoints need is on disk as well")
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  app.add_option("--listen", flags.listen, "host:port; port 0: any that is free")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "host:port at which others reach it; default: where it listens");
  app.add_option("--address-file", flags.address_file,
                 "written with host:port when it can be called");
  app.add_option("--memory-bytes", flags.memory_bytes,
                 "how much --store memory may hold; default: three quarters of what is free")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--insecure", flags.insecure, "plain text beyond this machine");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  InitLogging("weft-partition-server", 0);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  WEFT_LOG_ERROR("partition server: {}", std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
