// weft-trainer: trains buckets for the run of a lock server, until it is over.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/common/logging.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"
#include "services/common/rpc/monitoring.h"
#include "services/common/rpc/security_flags.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/trainer/cluster/cluster_trainer.h"

namespace weft {
namespace {

struct Flags {
  ClusterTrainer::Options trainer;
  SecurityFlags security;
  double patience_seconds = 300;
  double grace_seconds = 25;
  MonitoringFlags monitoring;
};

std::string DefaultName() {
  char host[256] = "trainer";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, "-", getpid());
}

// What a signal stops, once there is something.
class StopTarget {
 public:
  void Set(ClusterTrainer* trainer) {
    MutexLock lock(&mu_);
    trainer_ = trainer;
  }
  void Stop() {
    MutexLock lock(&mu_);
    if (!stopped_ && trainer_ == nullptr) std::_Exit(0);  // it has nothing yet
    stopped_ = true;
    if (trainer_ != nullptr) trainer_->Stop();
  }
  // Nothing is left to be stopped.
  void Clear() {
    MutexLock lock(&mu_);
    trainer_ = nullptr;
    stopped_ = true;
  }
  void Cancel() {
    MutexLock lock(&mu_);
    if (trainer_ != nullptr) trainer_->Cancel();
  }

 private:
  Mutex mu_;
  ClusterTrainer* trainer_ ABSL_GUARDED_BY(mu_) = nullptr;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// Lets go what is not done when the time for an orderly end is over.
class GraceTimer {
 public:
  GraceTimer(ShutdownSignals* signals, StopTarget* target, absl::Duration grace)
      : thread_([this, signals, target, grace] {
          signals->Wait();
          if (!done_.WaitFor(grace)) return;
          LogWarning("the time for an orderly end is over");
          target->Cancel();
        }),
        signals_(signals) {}
  ~GraceTimer() {
    done_.Cancel();
    signals_->Request();
    thread_.join();
  }

 private:
  CancelFlag done_;
  std::thread thread_;
  ShutdownSignals* const signals_;
};

absl::Status Run(const Flags& flags) {
  StopTarget target;
  ShutdownSignals signals;
  signals.SetListener([&target] { target.Stop(); });
  ClusterTrainer::Options options = flags.trainer;
  WEFT_ASSIGN_OR_RETURN(options.clients.security,
                        MakeSecurityOptions(flags.security, {Role::kTrainer}));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Monitoring> monitoring,
                        Monitoring::Start(flags.monitoring, "weft-trainer", ServerRole::kTrainer,
                                          "", options.clients.security));
  monitoring->readiness()->SetWaiting("waits for the lock server at " +
                                      flags.trainer.clients.lock_server);
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterTrainer> trainer,
                        ClusterTrainer::Begin(options));
  const auto measured =
      monitoring->registry()->Add([&](MetricsPage* page) { trainer->WriteMetrics(page); });
  absl::StatusOr<TrainingSummary> summary = absl::UnknownError("");
  {
    GraceTimer timer(&signals, &target, absl::Seconds(flags.grace_seconds));
    target.Set(trainer.get());
    monitoring->readiness()->SetReady();
    summary = trainer->Run();
    monitoring->readiness()->SetWaiting("it ends");
    target.Clear();
  }
  WEFT_RETURN_IF_ERROR(summary.status());
  const PhaseSeconds& phases = summary->phases;
  LogInfo("trainer ends", {{"reason", summary->stopped ? "was asked to stop" : "the run is over"},
                           {"edges", summary->trained_edges},
                           {"seconds", summary->train_seconds},
                           {"edges_per_second", summary->edges_per_second},
                           {"waiting_seconds", phases.waiting},
                           {"loading_seconds", phases.loading},
                           {"training_seconds", phases.training},
                           {"evaluating_seconds", phases.evaluating},
                           {"finishing_seconds", phases.finishing}});
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.trainer.clients.name = DefaultName();
  CLI::App app(
      "A trainer of a Weft cluster. Start as many as you like, whenever you like.\n\n"
      "  weft-trainer --lock-server HOST:PORT --threads 8");
  app.add_option("--lock-server", flags.trainer.clients.lock_server, "its host:port")->required();
  app.add_option("--name", flags.trainer.clients.name, "what people see of it");
  app.add_option("--threads", flags.trainer.threads,
                 "HOGWILD threads (default: as configured, else all cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--entity-path", flags.trainer.entity_path,
                 "where the run's entity_path lies on this machine");
  app.add_option("--edge-path", flags.trainer.edge_paths,
                 "where the run's edge_paths lie on this machine, in their order");
  app.add_option("--patience", flags.patience_seconds,
                 "seconds that an outage of a server may last")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--grace", flags.grace_seconds, "seconds for an orderly end after SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  AddSecurityFlags(&app, &flags.security);
  AddMonitoringFlags(&flags.monitoring, &app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  flags.trainer.clients.retry.patience = absl::Seconds(flags.patience_seconds);
  InitLogging("weft-trainer", flags.monitoring.log_format);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  LogError("trainer ends", {{"cause", status.message()}});
  return 1;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::Main(argc, argv); }
