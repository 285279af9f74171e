// What the processes of partition and parameter servers have in common: their flags, and the
// polling of the lock server until they are to end.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "services/common/polled_store.h"
#include "services/common/rpc/monitoring.h"
#include "services/common/rpc/security_flags.h"
#include "services/common/shutdown_signals.h"
#include "services/common/store_sync_client.h"

namespace weft {

struct StoreProcessFlags {
  std::string lock_server;
  std::string data_dir;
  std::string store = "rocksdb";
  std::string listen = "127.0.0.1:0";
  std::string advertise;
  std::string address_file;
  SecurityFlags security;
  MonitoringFlags monitoring;
};

// `stores`: what the values of --store mean.
void AddStoreProcessFlags(const std::string& stores, StoreProcessFlags* flags, CLI::App* app);

// Polls the lock server (at `address`) until a shutdown is requested, and waits for it as long as
// it does not answer. `served` is called after each answer that the store took.
// Errors: why this store cannot serve.
absl::Status PollLockServer(const std::string& address, StoreSyncClient* client, PolledStore* store,
                            ShutdownSignals* shutdown, absl::FunctionRef<void()> served);

}  // namespace weft
