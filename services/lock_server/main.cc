// weft-lock-server: the run of a cluster, behind LockService.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "services/common/clock.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/retry.h"
#include "services/common/rpc/monitoring.h"
#include "services/common/rpc/security_flags.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/run_config.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/lock_server/local_run_recovery.h"
#include "services/lock_server/local_run_setup.h"
#include "services/lock_server/lock_service_impl.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_loop.h"
#include "services/lock_server/run_metrics.h"

namespace weft {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  std::string data_dir;
  std::string listen = "127.0.0.1:0";
  std::string address_file;
  int param_servers = 1;
  std::vector<std::string> recover_from;
  SecurityFlags security;
  MonitoringFlags monitoring;
};

// Ends the process at once: what was not synced was told to nobody.
[[noreturn]] void EndAtOnce(const absl::Status& why) {
  LogError("lock server ends", {{"cause", why.ToString()}});
  FlushLog();
  std::_Exit(1);
}

absl::StatusOr<ClusterRunSetup> SetUp(const Flags& flags, const RunConfig& config,
                                      const SecurityOptions& security, RunStore* store) {
  WEFT_ASSIGN_OR_RETURN(std::optional<RunState> stored, store->Load());
  if (!flags.recover_from.empty()) {
    if (stored.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat(flags.data_dir, " holds run ", stored->run_id,
                       ": nothing is to be recovered; leave out --recover-from"));
    }
    WEFT_ASSIGN_OR_RETURN(stored, RecoverRun(flags.recover_from, security, {}));
  }
  if (!stored.has_value()) return MakeClusterRun(config, flags.param_servers);
  return ContinueClusterRun(config, *std::move(stored), flags.param_servers);
}

// The port of the life before is free again a little after its server has ended.
absl::StatusOr<std::unique_ptr<ServerRunner>> StartServer(const ServerRunner::Options& options,
                                                          bool again, ShutdownSignals* signals,
                                                          LockServiceImpl* service) {
  RetryOptions retry;
  retry.patience = absl::Seconds(10);
  Backoff backoff(retry, /*seed=*/1);
  while (true) {
    absl::StatusOr<std::unique_ptr<ServerRunner>> server = ServerRunner::Start(options, {service});
    if (server.ok() || !again) return server;
    const auto delay = backoff.Next(std::chrono::steady_clock::now());
    if (!delay.has_value() || signals->WaitFor(*delay)) return server;
  }
}

// Serves one life of the run, until the end of the process is asked for, or the edges that the run
// waits for are there: true then, and the next life begins (`again`). `listen`: the address, from
// the first life on.
absl::StatusOr<bool> Serve(const Flags& flags, const RunConfig& config,
                           const SecurityOptions& security, RocksDbRunStore* store,
                           ShutdownSignals* signals, Monitoring* monitoring, bool again,
                           std::string* listen) {
  WEFT_ASSIGN_OR_RETURN(ClusterRunSetup setup, SetUp(flags, config, security, store));
  const absl::Duration lease = absl::FromChrono(setup.plan.cluster->lease);
  WEFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunCoordinator> run,
      RunCoordinator::Start(std::move(setup.plan), std::move(setup.state), store));
  auto loop = std::make_unique<RunLoop>(run.get(), store, Clock::Real(), EndAtOnce, Log);
  CancelFlag ended;
  LockServiceImpl service(
      {.lease = lease,
       .max_wait = std::min(absl::Seconds(10), lease / 3),
       .on_superseded =
           [] { EndAtOnce(absl::FailedPreconditionError("a later life of this run exists")); },
       .on_edges_arrived = [&ended] { ended.Cancel(); }},
      run.get(), loop.get(), Clock::Real());
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ServerRunner> server,
                        StartServer({.listen = *listen,
                                     .security = security,
                                     .on_drain = [&loop] { loop->Drain(); },
                                     .metrics = monitoring->server_calls()},
                                    again, signals, &service));
  const absl::Cleanup in_order = [&] {
    monitoring->readiness()->SetWaiting("it ends, or begins anew");
    server->Drain();
    loop.reset();  // its thread uses the service until it has ended
  };
  *listen = server->address();
  const auto measured = monitoring->registry()->Add(
      [&run](MetricsPage* page) { WriteRunMetrics(run->metrics(), page); });
  const RunContext context = run->context();
  SetLogContext({{"run", context.run_id}});
  LogInfo("lock server begins", {{"address", server->address()},
                                 {"run", context.run_id},
                                 {"term", context.term},
                                 {"generation", context.generation.value_or(0)}});
  server->SetServing(true);
  monitoring->readiness()->SetReady();
  if (!flags.address_file.empty()) {
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(flags.address_file, server->address() + "\n"));
  }
  signals->SetListener([&ended] { ended.Cancel(); });
  const absl::Cleanup no_listener = [signals] { signals->SetListener(nullptr); };
  ended.Wait();
  return !signals->requested();
}

absl::Status Run(const Flags& flags, const RunConfig& config) {
  ShutdownSignals signals;
  WEFT_ASSIGN_OR_RETURN(const SecurityOptions security,
                        MakeSecurityOptions(flags.security, {Role::kLockServer}));
  WEFT_RETURN_IF_ERROR(MakeDirectories(flags.data_dir));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Monitoring> monitoring,
                        Monitoring::Start(flags.monitoring, "weft-lock-server", ServerRole::kLock,
                                          flags.data_dir, security));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<RocksDbRunStore> store,
                        RocksDbRunStore::Open(flags.data_dir + "/run"));
  const auto measured =
      monitoring->registry()->Add([&store](MetricsPage* page) { store->WriteMetrics(page); });
  std::string listen = flags.listen;
  for (bool again = false, ended = false; !ended; again = true) {
    WEFT_ASSIGN_OR_RETURN(const bool more, Serve(flags, config, security, store.get(), &signals,
                                                 monitoring.get(), again, &listen));
    ended = !more;
  }
  LogInfo("lock server ends");
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "The lock server of a Weft cluster: who trains what, which versions are current.\n\n"
      "  weft-lock-server --config run.json --data-dir /var/lib/weft --listen 0.0.0.0:7000");
  app.add_option("--config", flags.config, "the run configuration, JSON")->required();
  app.add_option("--set", flags.overrides, "key=value, overrides the configuration");
  app.add_option("--data-dir", flags.data_dir, "folder of its own, made if need be")->required();
  app.add_option("--listen", flags.listen, "host:port; port 0: any that is free")
      ->capture_default_str();
  app.add_option("--address-file", flags.address_file,
                 "written with host:port when it can be called");
  app.add_option("--param-servers", flags.param_servers, "how many the run has")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--recover-from", flags.recover_from,
                 "host:port of all partition servers: the data folder is lost; goes on from the "
                 "newest manifest that they keep")
      ->type_name("ADDRESS");
  AddSecurityFlags(&app, &flags.security);
  AddMonitoringFlags(&flags.monitoring, &app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  InitLogging("weft-lock-server", flags.monitoring.log_format);
  const absl::StatusOr<ConfigResult> config = LoadRunConfig(flags.config, flags.overrides);
  if (!config.ok()) {
    LogError("the configuration is refused", {{"cause", config.status().message()}});
    return 2;
  }
  for (const std::string& warning : config->warnings) {
    LogWarning("of the configuration", {{"warning", warning}});
  }
  SetLogVerbosity(config->config.verbose);
  const absl::Status status = Run(flags, config->config);
  if (status.ok()) return 0;
  LogError("lock server ends", {{"cause", status.message()}});
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
