#include "services/common/rpc/store_process.h"

#include <chrono>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "services/common/logging.h"
#include "services/common/retry.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kPollWait = absl::Seconds(20);

}  // namespace

void AddStoreProcessFlags(const std::string& stores, StoreProcessFlags* flags, CLI::App* app) {
  app->add_option("--lock-server", flags->lock_server, "its host:port")->required();
  app->add_option("--data-dir", flags->data_dir, "folder of its own, made if need be")->required();
  app->add_option("--store", flags->store, stores)
      ->check(CLI::IsMember({"rocksdb", "memory"}))
      ->capture_default_str();
  app->add_option("--listen", flags->listen, "host:port; port 0: any that is free")
      ->capture_default_str();
  app->add_option("--advertise", flags->advertise,
                  "host:port at which others reach it; default: where it listens");
  app->add_option("--address-file", flags->address_file,
                  "written with host:port when it can be called");
  AddSecurityFlags(app, &flags->security);
  AddMonitoringFlags(&flags->monitoring, app);
}

absl::Status PollLockServer(const std::string& address, StoreSyncClient* client, PolledStore* store,
                            ShutdownSignals* shutdown, absl::FunctionRef<void()> served) {
  shutdown->SetListener([client] { client->Interrupt(); });
  const absl::Cleanup no_listener = [shutdown] { shutdown->SetListener(nullptr); };
  RetryOptions retry;
  retry.patience = absl::InfiniteDuration();
  std::optional<Backoff> backoff;
  while (!shutdown->requested()) {
    const absl::StatusOr<StoreSyncClient::Answer> answer =
        client->Sync(store->context(), store->Report(), store->known_revision(), kPollWait);
    WEFT_RETURN_IF_ERROR(store->failure());
    absl::Status status = answer.status();
    if (status.ok()) {
      status = store->Take(*answer);
      if (status.ok()) {
        if (backoff.has_value()) LogInfo("lock server is there again", {{"address", address}});
        backoff.reset();
        SetLogContext({{"run", store->context().run_id}});
        served();
        continue;
      }
    }
    if (absl::IsCancelled(status)) continue;  // interrupted: there is something to report
    if (!IsTransient(status)) return Annotate(status, "lock server at " + address);
    if (!backoff.has_value()) {
      backoff.emplace(retry, store->Report().server.incarnation);
      LogWarning("lock server does not answer",
                 {{"address", address}, {"cause", status.message()}});
    }
    const auto delay = backoff->Next(std::chrono::steady_clock::now());
    shutdown->WaitFor(delay.value_or(retry.max_delay));
  }
  return absl::OkStatus();
}

}  // namespace weft
