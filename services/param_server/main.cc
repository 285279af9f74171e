// weft-param-server: keeps a share of what all trainers of a run share.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/retry.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_store_sync_client.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/param_orders.h"
#include "services/param_server/param_service_impl.h"
#include "services/param_server/param_sync.h"
#include "services/param_server/partition_snapshot_blobs.h"
#include "services/param_server/rocksdb_push_log.h"
#include "services/param_server/row_block_store.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/store_folder.h"

namespace weft {
namespace {

constexpr absl::Duration kPollWait = absl::Seconds(20);
// A flush waits for the disk; meanwhile others go on.
constexpr int kWorkers = 8;

struct Flags {
  std::string lock_server;
  std::string data_dir;
  std::string store = "rocksdb";
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string address_file;
  bool insecure = false;
};

absl::StatusOr<std::unique_ptr<PushLog>> OpenLog(const Flags& flags) {
  // The database keeps other processes away, also where nothing else is kept in it.
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<PushLog> log,
                        RocksDbPushLog::Open(flags.data_dir + "/params"));
  return log;
}

// Polls the lock server until the process is to end. Errors: why this server cannot serve.
absl::Status Serve(const Flags& flags, RowBlockStore* store, ParamSync* sync,
                   StoreSyncClient* lock_server, ServerRunner* runner, ShutdownSignals* shutdown) {
  RetryOptions retry;
  retry.patience = absl::InfiniteDuration();
  std::optional<Backoff> backoff;
  while (!shutdown->requested()) {
    const absl::StatusOr<StoreSyncClient::Answer> answer =
        lock_server->Sync(sync->context(), sync->Report(), sync->known_revision(), kPollWait);
    // Whatever it did not write is not known: a restart finds what is.
    WEFT_RETURN_IF_ERROR(store->failed());
    if (answer.ok()) {
      WEFT_RETURN_IF_ERROR(sync->Take(*answer));
      runner->SetServing(true);
      backoff.reset();
      continue;
    }
    if (absl::IsCancelled(answer.status())) continue;
    if (!IsTransient(answer.status())) {
      return Annotate(answer.status(), "lock server at " + flags.lock_server);
    }
    if (!backoff.has_value()) {
      backoff.emplace(retry, sync->incarnation());
      WEFT_LOG_WARNING("lock server at {}: {}; trying again", flags.lock_server,
                       std::string(answer.status().message()));
    }
    const auto delay = backoff->Next(std::chrono::steady_clock::now());
    shutdown->WaitFor(delay.value_or(retry.max_delay));
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  SecurityOptions security;
  security.allow_plain_text = flags.insecure;
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
  const bool durable = flags.store == "rocksdb";
  WEFT_RETURN_IF_ERROR(MakeDirectories(flags.data_dir));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<PushLog> disk, OpenLog(flags));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StoreFolder> folder,
                        StoreFolder::Open(flags.data_dir));
  MemoryPushLog memory;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<RowBlockStore> store,
                        RowBlockStore::Open({folder->incarnation(), kMaxParamMessageBytes},
                                            durable ? disk.get() : &memory));
  ChannelPool::Options pool;
  pool.security = security;
  ChannelPool channels(pool);
  GrpcBlobClient transfer(&channels, store->fence(), {});
  PartitionSnapshotBlobs blobs(&transfer);
  WorkPool workers(kWorkers);
  ParamServiceImpl service(store.get(), &workers);
  ServerRunner::Options listen;
  listen.listen = flags.listen;
  listen.security = security;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ServerRunner> runner,
                        ServerRunner::Start(listen, {&service}));
  const ServerInfo self{ServerRole::kParam, folder->store_id(), folder->incarnation(),
                        flags.advertise.empty() ? runner->address() : flags.advertise, durable};
  ParamSync sync(folder.get(), store.get(), &blobs, self,
                 [&lock_server] { lock_server->Interrupt(); });
  WEFT_LOG_INFO("parameter server: address={} store={:016x} keeps={}", self.address, self.store_id,
                flags.store);
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, self.address + "\n"));
  }
  const absl::Status status =
      Serve(flags, store.get(), &sync, lock_server.get(), runner.get(), &shutdown);
  WEFT_LOG_INFO("parameter server: ends");
  runner->Drain();
  return status;
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "A parameter server of a Weft cluster: keeps a share of what all trainers share.\n\n"
      "  weft-param-server --lock-server HOST:PORT --data-dir /var/lib/weft");
  app.add_option("--lock-server", flags.lock_server, "host:port of the lock server")->required();
  app.add_option("--data-dir", flags.data_dir, "folder of its own, made if need be")->required();
  app.add_option("--store", flags.store,
                 "rocksdb: all on disk; memory: nothing, a restart rewinds the run")
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  app.add_option("--listen", flags.listen, "host:port; port 0: any that is free")
      ->capture_default_str();
  app.add_option("--advertise", flags.advertise,
                 "host:port at which others reach it; default: where it listens");
  app.add_option("--address-file", flags.address_file,
                 "written with host:port when it can be called");
  app.add_flag("--insecure", flags.insecure, "plain text beyond this machine");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  InitLogging("weft-param-server", 0);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  WEFT_LOG_ERROR("parameter server: {}", std::string(status.message()));
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
