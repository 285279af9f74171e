// weft cluster up: a whole cluster on this machine, real processes, until its run is over.
#include <CLI/App.hpp>
#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/checkpoint_pull.h"
#include "cli/checkpoint_push.h"
#include "cli/cluster_processes.h"
#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/edge_upload.h"
#include "cli/progress.h"
#include "cli/reference_hook.h"
#include "cli/run_status.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/dataset_manifest.h"
#include "services/common/file_util.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"
#include "services/common/rpc/security_flags.h"
#include "services/common/run_config.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"
#include "services/lock_server/grpc_operator_client.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_folder_lock.h"

namespace weft::cli {
namespace {

// How long the lock server may be away before this command gives up: it starts again in seconds.
constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr absl::Duration kLookEvery = absl::Seconds(1);

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  int trainers = 2;
  int partition_servers = 2;
  int param_servers = 1;
  std::string store = "rocksdb";
  std::string data_dir;
  int threads = 0;
  SecurityFlags security;
  std::string json;
};

// Brings what a run waits for while the processes are looked after.
class BackgroundUpload {
 public:
  using Work = std::function<absl::Status(GrpcOperatorClient* lock_server, CancelFlag* cancel)>;
  static absl::StatusOr<std::unique_ptr<BackgroundUpload>> Start(const std::string& lock_server,
                                                                 const SecurityOptions& security,
                                                                 Work work) {
    std::unique_ptr<BackgroundUpload> upload(new BackgroundUpload);
    GrpcOperatorClient::Options lock;
    lock.address = lock_server;
    lock.retry.patience = kPatience;
    lock.security = security;
    WEFT_ASSIGN_OR_RETURN(upload->lock_server_, GrpcOperatorClient::Create(std::move(lock)));
    upload->thread_ = std::thread([upload = upload.get(), work = std::move(work)] {
      const absl::Status status = work(upload->lock_server_.get(), &upload->cancel_);
      MutexLock lock(&upload->mu_);
      upload->status_ = status;
    });
    return upload;
  }
  ~BackgroundUpload() {
    cancel_.Cancel();
    if (lock_server_ != nullptr) lock_server_->Cancel();
    if (thread_.joinable()) thread_.join();
  }

  // OK while it is under way, and when it is done.
  absl::Status status() {
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  BackgroundUpload() = default;

  CancelFlag cancel_;
  std::unique_ptr<GrpcOperatorClient> lock_server_;
  std::thread thread_;
  Mutex mu_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class ClusterUp {
 public:
  ClusterUp(const Flags& flags, const RunConfig& config) : flags_(flags), config_(config) {}

  absl::Status Run() {
    ShutdownSignals signals;
    signals.SetListener([this] { CancelCalls(); });
    // All of them show the same certificate.
    WEFT_ASSIGN_OR_RETURN(security_, MakeSecurityOptions(flags_.security, RoleSet::All()));
    data_dir_ = flags_.data_dir.empty() ? absl::StrCat(config_.checkpoint_path, "/.cluster")
                                        : flags_.data_dir;
    WEFT_RETURN_IF_ERROR(CheckFolder());
    WEFT_RETURN_IF_ERROR(MakeDirectories(data_dir_));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalFolderLock> held,
                          LocalFolderLock::Acquire(data_dir_));
    WEFT_ASSIGN_OR_RETURN(processes_, StartProcesses(&signals));
    absl::Status status = Follow(&signals);
    upload_ = nullptr;
    push_ = nullptr;
    progress_ = nullptr;
    if (status.ok() && !signals.requested()) status = Pull();
    stopped_ = signals.requested();
    if (stopped_) {
      std::cout << "stopping; the same command goes on later from " << data_dir_ << std::endl;
      status = absl::OkStatus();
    }
    processes_ = nullptr;
    return status;
  }

  bool stopped() const { return stopped_; }

 private:
  // What lies in the checkpoint folder may be another run's.
  absl::Status CheckFolder() const {
    std::vector<CheckpointDir::EntityType> types;
    for (size_t t = 0; t < config_.entities.size(); ++t) {
      if (!IsTrained(config_, static_cast<EntityTypeId>(t))) continue;
      types.push_back({config_.entities[t].name, config_.entities[t].num_partitions});
    }
    const CheckpointDir dir(config_.checkpoint_path, std::move(types));
    const int64_t version = dir.CommittedVersion().value_or(0);
    const bool ours = ReadFile(data_dir_ + "/addresses/lock-server").ok();
    if (version == 0 || ours) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(config_.checkpoint_path, " holds version ", version,
                     " of another run, and a new cluster begins anew; choose another "
                     "checkpoint_path (`weft checkpoint push` brings that version into the "
                     "cluster), or the --data-dir of the cluster that made it"));
  }

  absl::StatusOr<std::unique_ptr<ClusterProcesses>> StartProcesses(ShutdownSignals* signals) {
    ClusterProcesses::Options options;
    options.programs = ProgramFolder();
    options.data_dir = data_dir_;
    options.config = flags_.config;
    options.overrides = flags_.overrides;
    options.trainers = flags_.trainers;
    options.partition_servers = flags_.partition_servers;
    options.param_servers = flags_.param_servers;
    options.store = flags_.store;
    options.arguments = SecurityArguments(flags_.security);
    options.threads =
        flags_.threads > 0 ? flags_.threads : std::max(1, config_.NumThreads() / flags_.trainers);
    options.on_event = [this](const std::string& event) { Say(event); };
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ClusterProcesses> processes,
                          ClusterProcesses::Start(std::move(options), signals));
    std::cout << "cluster: lock server at " << processes->lock_server() << ", "
              << flags_.partition_servers << " partition servers (" << flags_.store << "), "
              << flags_.param_servers << " parameter servers, " << flags_.trainers
              << " trainers; logs in " << processes->LogFolder() << "\n"
              << "metrics: " << processes->MetricsTargets()
              << " says where (for Prometheus' file_sd_configs)\n"
              << "weft status " << processes->lock_server() << " --watch shows what it does"
              << std::endl;
    GrpcOperatorClient::Options lock;
    lock.address = processes->lock_server();
    lock.retry.patience = kLookEvery;  // then its process is looked after again
    lock.security = security_;
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<GrpcOperatorClient> client,
                          GrpcOperatorClient::Create(std::move(lock)));
    MutexLock guard(&mu_);
    lock_server_ = std::move(client);
    return processes;
  }

  GrpcOperatorClient* client() {
    MutexLock guard(&mu_);
    return lock_server_.get();
  }

  void CancelCalls() {
    MutexLock guard(&mu_);
    if (lock_server_ != nullptr) lock_server_->Cancel();
  }

  void Say(const std::string& event) {
    if (progress_ != nullptr) {
      progress_->Print(event);
    } else {
      std::cerr << "weft cluster: " << event << std::endl;
    }
  }

  // Until the run is over and its last version is whole.
  absl::Status Follow(ShutdownSignals* signals) {
    uint64_t revision = 0;
    auto answered = std::chrono::steady_clock::now();
    while (!signals->requested()) {
      // Looked after first: a lock server that was killed answers only when it is there again.
      WEFT_RETURN_IF_ERROR(processes_->Supervise());
      const absl::StatusOr<v1::GetRunStateResponse> state =
          client()->GetRunState(false, revision, kLookEvery);
      if (signals->requested()) break;
      const auto now = std::chrono::steady_clock::now();
      if (IsTransient(state.status()) && absl::FromChrono(now - answered) < kPatience) continue;
      WEFT_RETURN_IF_ERROR(state.status());
      answered = now;
      revision = state->revision();
      WEFT_RETURN_IF_ERROR(BringEdges(*state));
      if (!state->missing_edges().empty()) continue;  // how many there are is not known yet
      WEFT_RETURN_IF_ERROR(BringCheckpoint(*state));
      Show(*state);
      if (state->phase() == v1::RUN_PHASE_FAILED) {
        return absl::AbortedError(absl::StrCat("the run has failed: ", state->reason()));
      }
      if (state->phase() == v1::RUN_PHASE_DONE && LastVersionIsWhole(*state)) break;
    }
    return absl::OkStatus();
  }

  // Edges that the run waits for are brought, if `weft import` has made them on this machine.
  absl::Status BringEdges(const v1::GetRunStateResponse& state) {
    if (upload_ != nullptr) return upload_->status();
    if (state.missing_edges().empty() || asked_for_edges_) return absl::OkStatus();
    const RunConfig local = WithLocalEdges(config_);
    const absl::Status here =
        CheckDataset(DatasetSchemaOf(local), local.entity_path, local.edge_paths);
    const std::string paths = absl::StrJoin(state.missing_edges(), ", ");
    if (absl::IsNotFound(here)) {
      asked_for_edges_ = true;
      Say(absl::StrCat("the run waits for the edges of ", paths, "; bring them with: weft import ",
                       flags_.config, " INPUT... --to ", processes_->lock_server()));
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(here);
    Say(absl::StrCat("brings the edges of ", paths, " from ", local.edge_paths.front()));
    WEFT_ASSIGN_OR_RETURN(upload_,
                          BackgroundUpload::Start(
                              processes_->lock_server(), security_,
                              [this](GrpcOperatorClient* lock_server, CancelFlag* cancel) {
                                EdgeUploadOptions options;
                                options.security = security_;
                                return UploadEdges(lock_server, config_, options, cancel).status();
                              }));
    return absl::OkStatus();
  }

  // The checkpoint that the run is to begin with lies on this machine.
  absl::Status BringCheckpoint(const v1::GetRunStateResponse& state) {
    if (push_ != nullptr) return push_->status();
    if (state.missing_checkpoint().empty()) return absl::OkStatus();
    PushOptions options;
    options.folder = state.missing_checkpoint();
    options.beginning = true;
    options.security = security_;
    options.on_note = [](const std::string& note) {
      std::cerr << "weft cluster: " << note << std::endl;
    };
    Say(absl::StrCat("brings the checkpoint of init_path from ", options.folder));
    WEFT_ASSIGN_OR_RETURN(
        push_,
        BackgroundUpload::Start(processes_->lock_server(), security_,
                                [options](GrpcOperatorClient* lock_server, CancelFlag* cancel) {
                                  return PushCheckpoint(lock_server, options, cancel).status();
                                }));
    return absl::OkStatus();
  }

  static bool LastVersionIsWhole(const v1::GetRunStateResponse& state) {
    const v1::ManifestInfo* last = nullptr;
    for (const v1::ManifestInfo& manifest : state.manifests()) {
      if (manifest.version() > 0 && (last == nullptr || manifest.version() > last->version())) {
        last = &manifest;
      }
    }
    return last != nullptr && last->committed();
  }

  void Show(const v1::GetRunStateResponse& state) {
    const auto now = std::chrono::steady_clock::now();
    if (progress_ == nullptr) {
      ProgressReporter::Options options;
      options.title = "train";
      options.unit = "edges";
      first_edges_ = EdgesDone(state);
      options.total = std::max<int64_t>(1, state.num_epochs() * state.epoch_edges() - first_edges_);
      progress_ = std::make_unique<ProgressReporter>(options);
    }
    if (state.phase() == v1::RUN_PHASE_RUNNING && !begun_.has_value()) begun_ = now;
    last_edges_ = EdgesDone(state);
    ended_ = now;
    progress_->SetDone(last_edges_ - first_edges_);
    std::string note =
        absl::StrCat("epoch ", std::min(state.position().epoch() + 1, state.num_epochs()), "/",
                     state.num_epochs(), ", ", state.trainers_size(),
                     state.trainers_size() == 1 ? " trainer" : " trainers");
    if (state.phase() != v1::RUN_PHASE_RUNNING) {
      absl::StrAppend(&note, ", ", PhaseName(state.phase()));
    }
    progress_->SetNote(note);
  }

  absl::Status Pull() {
    PullOptions options;
    options.folder = config_.checkpoint_path;
    options.security = security_;
    WEFT_ASSIGN_OR_RETURN(const PulledCheckpoint pulled, PullCheckpoint(client(), options));
    const double seconds =
        begun_.has_value() ? std::chrono::duration<double>(ended_ - *begun_).count() : 0;
    const int64_t edges = last_edges_ - first_edges_;
    const double rate = seconds > 0 ? static_cast<double>(edges) / seconds : 0;
    std::cout << FormatCount(edges) << " edges in " << FormatElapsed(absl::Seconds(seconds)) << " ("
              << FormatRate(rate) << " edges/s)\nversion " << pulled.version << " is in "
              << pulled.folder << std::endl;
    if (flags_.json.empty()) return absl::OkStatus();
    const nlohmann::ordered_json report = {{"edges_per_second", rate},
                                           {"edges", edges},
                                           {"seconds", seconds},
                                           {"epochs", pulled.epochs},
                                           {"trainers", flags_.trainers},
                                           {"partition_servers", flags_.partition_servers},
                                           {"param_servers", flags_.param_servers},
                                           {"store", flags_.store},
                                           {"checkpoint_path", pulled.folder},
                                           {"checkpoint_version", pulled.version}};
    return WriteFileAtomically(flags_.json, report.dump(2) + "\n");
  }

  const Flags& flags_;
  const RunConfig& config_;
  std::string data_dir_;
  SecurityOptions security_;
  std::unique_ptr<ClusterProcesses> processes_;
  std::unique_ptr<BackgroundUpload> upload_;  // of edges
  std::unique_ptr<BackgroundUpload> push_;    // of a checkpoint
  bool asked_for_edges_ = false;
  std::unique_ptr<ProgressReporter> progress_;
  Mutex mu_;
  std::unique_ptr<GrpcOperatorClient> lock_server_ ABSL_GUARDED_BY(mu_);
  int64_t first_edges_ = 0;
  int64_t last_edges_ = 0;
  std::optional<std::chrono::steady_clock::time_point> begun_;
  std::chrono::steady_clock::time_point ended_;
  bool stopped_ = false;
};

int RunClusterUp(const Flags& flags) {
  const absl::StatusOr<ConfigResult> config =
      LoadRunConfig(flags.config, flags.overrides, ProgramConfigOptions());
  if (!config.ok()) return Fail("cluster up", config.status(), /*usage=*/true);
  for (const std::string& warning : config->warnings) {
    std::cerr << "weft cluster up: warning: " << warning << "\n";
  }
  ClusterUp cluster(flags, config->config);
  if (absl::Status status = cluster.Run(); !status.ok()) {
    return absl::IsCancelled(status) ? 1 : Fail("cluster up", status);
  }
  return cluster.stopped() ? 1 : 0;
}

}  // namespace

void AddClusterCommand(CLI::App& app, Action* action) {
  CLI::App* const group =
      app.add_subcommand("cluster", "A whole cluster on this machine; pause and resume any");
  group->require_subcommand(1);
  CLI::App* const command = group->add_subcommand(
      "up", "Train with real processes: servers and trainers, until the run is over");
  const auto flags = std::make_shared<Flags>();
  command->add_option("CONFIG", flags->config, "The configuration, JSON")->required();
  AddOverrides(*command, &flags->overrides, "Override a key: lr=0.1, num_epochs=30");
  command->add_option("--trainers", flags->trainers, "How many trainers")
      ->check(CLI::Range(1, 256));
  command->add_option("--partition-servers", flags->partition_servers, "How many partition servers")
      ->check(CLI::Range(1, 256));
  command->add_option("--param-servers", flags->param_servers, "How many parameter servers")
      ->check(CLI::Range(0, 256));
  command->add_option("--store", flags->store, "What partition servers keep versions in")
      ->check(CLI::IsMember({"rocksdb", "memory"}));
  command
      ->add_option("--data-dir", flags->data_dir,
                   "What the servers keep, and the logs (default: .cluster in checkpoint_path)")
      ->type_name("DIR")
      ->default_str("");
  command
      ->add_option("--threads", flags->threads,
                   "Threads of each trainer (default: the configured ones, shared)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->default_str("");
  AddSecurityFlags(command, &flags->security);
  command->add_option("--json", flags->json, "Write what was done as JSON to this file")
      ->type_name("FILE");
  command->footer("Example:\n  weft cluster up run.json --trainers 2\n");
  AddClusterOperations(*group, action);
  group->footer("Example:\n  weft cluster up run.json --trainers 2\n");
  command->callback([flags, action] { *action = [flags] { return RunClusterUp(*flags); }; });
}

}  // namespace weft::cli
