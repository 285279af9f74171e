// weft train: trains on this machine what a configuration describes, and goes on where an earlier
// call stopped.
#include <sys/resource.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/config_options.h"
#include "cli/progress.h"
#include "cli/reference_hook.h"
#include "cli/report_file.h"
#include "cli/train_report.h"
#include "services/common/available_memory.h"
#include "services/common/logging.h"
#include "services/common/mutex.h"
#include "services/common/run_config.h"
#include "services/common/status_macros.h"
#include "services/trainer/fused/fused_batch_step.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_run.h"
#include "services/trainer/memory_plan.h"
#include "services/trainer/training_loop.h"
#include "services/trainer/training_task.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string config;
  std::vector<std::string> overrides;
  int threads = 0;
  std::string json;
};

// Set by the first SIGINT or SIGTERM; a second one ends the process as usual.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void RequestStop(int) { stop_requested = true; }

void StopOnSignals() {
  struct sigaction action = {};
  action.sa_handler = RequestStop;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void Warn(const std::string& warning) { std::cerr << "weft train: warning: " << warning << "\n"; }

int64_t PeakMemoryBytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Shows the run as it goes: a bar (or lines) of the edges left, and a line for each epoch.
class TrainDisplay : public TrainingObserver {
 public:
  TrainDisplay(const RunConfig& config, const RunProgress& start)
      : config_(config), start_(start), reporter_(Options(start)) {}

  void OnProgress(const TrainingProgress& progress) override {
    reporter_.SetDone(edges_before_ + progress.done_edges);
    std::string note = absl::StrCat("epoch ", progress.position.epoch + 1, "/", config_.num_epochs);
    if (start_.buckets > 1) {
      absl::StrAppend(&note, " bucket (", progress.bucket.lhs, ", ", progress.bucket.rhs, ")");
    }
    if (progress.phase != TrainingProgress::Phase::kTraining) {
      absl::StrAppend(&note, " evaluating held-out edges");
    } else if (progress.done_edges > 0) {
      absl::StrAppend(&note, absl::StrFormat(" loss %.4g", progress.loss));
    }
    reporter_.SetNote(note);
  }

  void OnBucketTrained(const Grant&, const BucketStats& stats) override {
    edges_before_ += stats.trained_edges + stats.held_out_edges;
    reporter_.SetDone(edges_before_);
    if (config_.verbose > 0) reporter_.Print(BucketLine(stats));
  }

  // Called on the thread that commits.
  void OnCommit(const CompletePass& pass) {
    MutexLock lock(&mu_);
    for (const DoneBucket& bucket : pass.buckets) stats_.Add(pass.position, bucket.stats);
    if (!pass.ends_epoch) return;
    for (const EpochSummary& epoch : stats_.Epochs()) {
      if (epoch.epoch == pass.position.epoch) {
        reporter_.Print(EpochLine(epoch, config_.num_epochs));
      }
    }
  }

  // No calls after this one.
  void End() { reporter_.Abandon(); }

  std::vector<EpochSummary> Epochs() {
    MutexLock lock(&mu_);
    return stats_.Epochs();
  }

 private:
  static ProgressReporter::Options Options(const RunProgress& start) {
    const PassPosition& at = start.position;
    ProgressReporter::Options options;
    options.title = "train";
    options.unit = "edges";
    // What the passes of this epoch before the present one had is not known exactly; their number
    // is.
    int64_t left = (start.num_epochs - at.epoch) * start.epoch_edges - start.edges_done;
    options.total = std::max<int64_t>(left, 1);
    return options;
  }

  const RunConfig& config_;
  const RunProgress start_;
  ProgressReporter reporter_;
  int64_t edges_before_ = 0;  // of buckets that are done; the loop's thread only
  Mutex mu_;
  TrainingStats stats_ ABSL_GUARDED_BY(mu_);
};

absl::StatusOr<const BatchStepFactory*> ChooseFactory(const RunConfig& config) {
  static const FusedBatchStepFactory fused;
  if (config.compute == Compute::kReference) return GetReferenceFactory();
  return &fused;
}

// Everything after the configuration was read and found sound.
class TrainCommand {
 public:
  TrainCommand(const Flags& flags, const RunConfig& config) : flags_(flags), config_(config) {}

  absl::Status Run() {
    const auto start = std::chrono::steady_clock::now();
    // What can be refused is refused before anything is written.
    WEFT_ASSIGN_OR_RETURN(const BatchStepFactory* factory, ChooseFactory(config_));
    WEFT_ASSIGN_OR_RETURN(LocalData data, ReadLocalData(config_));
    WEFT_ASSIGN_OR_RETURN(TrainingTask task, MakeTrainingTask(config_, data.entity_counts,
                                                              data.num_dynamic_relations));
    const MemoryNeeds needs = {.bucket_edges = LargestEdgeChunk(config_, data.LargestBucket()),
                               .available = AvailableMemory(),
                               .bucket_features = FeaturesOfChunk(config_, data.LargestBucket(),
                                                                  data.LargestBucketFeatures())};
    WEFT_ASSIGN_OR_RETURN(const MemoryPlan memory, PlanMemory(task, needs));
    WEFT_ASSIGN_OR_RETURN(SharedState live, MakeSharedState(task, *factory));
    WEFT_RETURN_IF_ERROR(factory->Make(task.spec, &live.parameters).status());

    std::unique_ptr<TrainDisplay> display;
    LocalRun::Options options;
    options.data = std::move(data);
    options.on_commit = [&](const CompletePass& pass) {
      if (display != nullptr) display->OnCommit(pass);
    };
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalRun> run,
                          LocalRun::Open(config_, std::move(options)));
    for (const std::string& note : run->notes()) {
      std::cerr << "weft train: " << note << "\n";
    }
    task.config = run->config();
    task.seed = *run->config().seed;
    TrainReport report;
    report.config = &run->config();
    report.threads = run->config().NumThreads();
    if (const std::string completion = run->Completion(); !completion.empty()) {
      std::cout << completion << "\n";
    } else {
      const RunProgress at = run->progress();
      Announce(run->config(), at);
      StopOnSignals();
      display = std::make_unique<TrainDisplay>(run->config(), at);
      absl::StatusOr<TrainingSummary> summary =
          Train(task, memory, *factory, run.get(), &live, display.get());
      display->End();
      WEFT_RETURN_IF_ERROR(summary.status());
      report.summary = *std::move(summary);
      report.epochs = display->Epochs();
    }
    report.progress = run->progress();
    report.checkpoint_version = report.progress.position.pass;
    report.peak_memory_bytes = PeakMemoryBytes();
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (display != nullptr) std::cout << LastLines(report, flags_.config) << std::flush;
    if (!flags_.json.empty()) {
      WEFT_RETURN_IF_ERROR(WriteReport(flags_.json, ReportToJson(report)));
    }
    stopped_ = report.summary.stopped;
    return absl::OkStatus();
  }

  bool stopped() const { return stopped_; }

 private:
  absl::StatusOr<TrainingSummary> Train(const TrainingTask& task, const MemoryPlan& memory,
                                        const BatchStepFactory& factory, LocalRun* run,
                                        SharedState* live, TrainDisplay* display) const {
    TrainingLoop::Options options;
    options.num_threads = task.config.NumThreads();
    options.pipeline.prefetch = memory.prefetch;
    options.pipeline.background_store = memory.background_store;
    options.pipeline.resident_partitions = task.config.resident_partitions;
    TrainingLoop loop(task, options,
                      {&run->lock(), &run->params(), &run->partitions(), &factory, display}, live);
    return loop.Run(stop_requested);
  }

  static void Announce(const RunConfig& config, const RunProgress& at) {
    std::cout << (at.position.pass > 0 || at.edges_done > 0 ? "going on in epoch "
                                                            : "starting with epoch ")
              << at.position.epoch + 1 << "/" << at.num_epochs << ": "
              << FormatCount(at.epoch_edges) << " edges an epoch, " << FormatCount(at.buckets)
              << (at.buckets == 1 ? " bucket" : " buckets") << ", " << config.NumThreads()
              << (config.NumThreads() == 1 ? " thread" : " threads") << ", seed " << *config.seed
              << std::endl;
    if (at.position.pass == 0 && config.eval_fraction == RunConfig().eval_fraction) {
      Warn(absl::StrCat("eval_fraction is ", config.eval_fraction,
                        ", the default: these edges are held out and never trained; set it to 0 "
                        "to train on all"));
    }
  }

  const Flags& flags_;
  const RunConfig& config_;
  bool stopped_ = false;
};

int RunTrain(const Flags& flags) {
  std::vector<std::string> overrides = flags.overrides;
  if (flags.threads > 0) overrides.push_back(absl::StrCat("threads=", flags.threads));
  const absl::StatusOr<ConfigResult> config =
      LoadRunConfig(flags.config, overrides, ProgramConfigOptions());
  if (!config.ok()) return Fail("train", config.status(), /*usage=*/true);
  for (const std::string& warning : config->warnings) Warn(warning);
  InitLogging("weft");
  SetLogLevel(config->config.verbose == 0 ? LogEvent::Level::kWarning : LogEvent::Level::kDebug);

  TrainCommand command(flags, config->config);
  if (absl::Status status = command.Run(); !status.ok()) return Fail("train", status);
  return command.stopped() ? 1 : 0;
}

}  // namespace

void AddTrainCommand(CLI::App& app, Action* action) {
  CLI::App* const command =
      app.add_subcommand("train", "Train on this machine, or go on where an earlier call stopped");
  const auto flags = std::make_shared<Flags>();
  command->add_option("CONFIG", flags->config, "The configuration, JSON")->required();
  AddOverrides(*command, &flags->overrides, "Override a key: lr=0.1, num_epochs=30, edge_paths=a");
  command->add_option("--threads", flags->threads, "HOGWILD threads (default: as configured)")
      ->type_name("N")
      ->check(CLI::Range(1, 1024))
      ->default_str("");
  AddReportOption(*command, &flags->json, "Write what was done as JSON to this file");
  command->footer(
      "Example:\n"
      "  weft train run.json --set num_epochs=30 --json stats.json\n");
  command->callback([flags, action] { *action = [flags] { return RunTrain(*flags); }; });
}

}  // namespace weft::cli
