// weft-param-server: keeps a share of what all trainers of a run share.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>

#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_store_sync_client.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/rpc/store_process.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/common/store_folder.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/param_orders.h"
#include "services/param_server/param_service_impl.h"
#include "services/param_server/param_sync.h"
#include "services/param_server/partition_snapshot_blobs.h"
#include "services/param_server/rocksdb_push_log.h"
#include "services/param_server/row_block_store.h"
#include "services/partition_server/grpc_blob_client.h"

namespace weft {
namespace {

// A flush waits for the disk; meanwhile others go on.
constexpr int kWorkers = 8;

absl::Status Run(const StoreProcessFlags& flags) {
  // Before gRPC starts threads of its own, which would take the signals.
  ShutdownSignals shutdown;
  WEFT_ASSIGN_OR_RETURN(const SecurityOptions security,
                        MakeSecurityOptions(flags.security, {Role::kParamServer}));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Monitoring> monitoring,
                        Monitoring::Start(flags.monitoring, "weft-param-server", ServerRole::kParam,
                                          flags.data_dir, security));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcStoreSyncClient> lock_server,
                        GrpcStoreSyncClient::Connect(flags.lock_server, security));
  const bool durable = flags.store == "rocksdb";
  WEFT_RETURN_IF_ERROR(MakeDirectories(flags.data_dir));
  // The database keeps other processes away, also where nothing else is kept in it.
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbPushLog> disk,
                        RocksDbPushLog::Open(flags.data_dir + "/params"));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<StoreFolder> folder,
                        StoreFolder::Open(flags.data_dir));
  MemoryPushLog memory;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<RowBlockStore> store,
                        RowBlockStore::Open({folder->incarnation(), kMaxParamMessageBytes},
                                            durable ? static_cast<PushLog*>(disk.get())
                                                    : static_cast<PushLog*>(&memory)));
  TransferMetrics transfers;
  const auto measured = monitoring->registry()->Add([&](MetricsPage* page) {
    store->WriteMetrics(page);
    disk->WriteMetrics(page);
    transfers.Write(page);
  });
  ChannelPool::Options pool;
  pool.security = security;
  ChannelPool channels(pool);
  GrpcBlobClient::Options blobs_options;
  blobs_options.metrics = &transfers;
  GrpcBlobClient transfer(&channels, store->fence(), blobs_options);
  PartitionSnapshotBlobs blobs(&transfer);
  WorkPool workers(kWorkers);
  ParamServiceImpl service(store.get(), &workers, &transfers,
                           [&lock_server] { lock_server->Interrupt(); });
  ServerRunner::Options listen;
  listen.listen = flags.listen;
  listen.security = security;
  listen.metrics = monitoring->server_calls();
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ServerRunner> runner,
                        ServerRunner::Start(listen, {&service}));
  const ServerInfo self{ServerRole::kParam, folder->store_id(), folder->incarnation(),
                        flags.advertise.empty() ? runner->address() : flags.advertise, durable};
  ParamSync sync(folder.get(), store.get(), &blobs, self,
                 [&lock_server] { lock_server->Interrupt(); });
  LogInfo("parameter server begins",
          {{"address", self.address},
           {"store", absl::StrCat(absl::Hex(self.store_id, absl::kZeroPad16))},
           {"keeps", flags.store}});
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, self.address + "\n"));
  }
  monitoring->readiness()->SetWaiting("waits for the lock server at " + flags.lock_server);
  const absl::Status status = PollLockServer(flags.lock_server, lock_server.get(), &sync, &shutdown,
                                             [&runner, &monitoring] {
                                               runner->SetServing(true);
                                               monitoring->readiness()->SetReady();
                                             });
  monitoring->readiness()->SetWaiting("it ends");
  LogInfo("parameter server ends");
  runner->Drain();
  return status;
}

int Main(int argc, char** argv) {
  StoreProcessFlags flags;
  CLI::App app(
      "A parameter server of a Weft cluster: keeps a share of what all trainers share.\n\n"
      "  weft-param-server --lock-server HOST:PORT --data-dir /var/lib/weft");
  AddStoreProcessFlags("rocksdb: all on disk; memory: nothing, a restart rewinds the run", &flags,
                       &app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  InitLogging("weft-param-server", flags.monitoring.log_format);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  LogError("parameter server ends", {{"cause", status.message()}});
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
