#include "services/trainer/local/local_run.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/status_macros.h"
#include "services/lock_server/file_run_store.h"
#include "services/lock_server/local_lock_client.h"
#include "services/param_server/local_param_client.h"
#include "services/partition_server/partition_file_store.h"
#include "services/trainer/local/local_checkpoint.h"
#include "services/trainer/local/local_data.h"
#include "services/trainer/local/local_folder_lock.h"
#include "services/trainer/local/local_init_checkpoint.h"
#include "services/trainer/local/local_start.h"
#include "services/trainer/local/local_stats_file.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

constexpr int kTokenBits = 40;

CheckpointDir MakeDir(const RunConfig& config) {
  std::vector<CheckpointDir::EntityType> types;
  for (size_t t = 0; t < config.entities.size(); ++t) {
    if (!IsTrained(config, static_cast<EntityTypeId>(t))) continue;
    types.push_back({config.entities[t].name, config.entities[t].num_partitions});
  }
  return CheckpointDir(config.checkpoint_path, std::move(types));
}

class LocalRunImpl : public LocalRun {
 public:
  LocalRunImpl(const RunConfig& config, Options options)
      : config_(config), options_(std::move(options)), dir_(MakeDir(config)) {}

  absl::Status Open() {
    if (options_.data.has_value()) {
      data_ = *std::move(options_.data);
    } else {
      WEFT_ASSIGN_OR_RETURN(data_, ReadLocalData(config_));
    }
    WEFT_ASSIGN_OR_RETURN(folder_lock_, LocalFolderLock::Acquire(config_.checkpoint_path));
    absl::StatusOr<LocalStart> start = Check();
    if (!start.ok()) {
      folder_lock_->RemoveTraces();
      return start.status();
    }
    return Start(*std::move(start));
  }

  const RunConfig& config() const override { return config_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  LockClient& lock() override { return *lock_; }
  PartitionClient& partitions() override { return *blobs_; }
  ParamClient& params() override { return *params_; }
  RunProgress progress() const override { return coordinator_->progress(); }

  std::string Completion() const override {
    const RunProgress progress = coordinator_->progress();
    if (!progress.done) return "";
    const EarlyStoppingState& stopping = progress.early_stopping;
    if (progress.stopped_early) {
      const std::string best =
          stopping.best_version > 0
              ? absl::StrCat(" (the best is kept as epoch_", stopping.best_epoch, ")")
              : std::string();
      return absl::StrCat("already stopped early, after ", progress.position.epoch, " of ",
                          progress.num_epochs, " epochs", best);
    }
    return absl::StrCat("already complete (", progress.position.epoch, "/", progress.num_epochs,
                        " epochs)");
  }

 private:
  std::string StatePath(absl::string_view name) const {
    return absl::StrCat(config_.checkpoint_path, "/.weft/", name);
  }

  // Reads only.
  absl::StatusOr<LocalStart> Check() {
    WEFT_ASSIGN_OR_RETURN(store_, FileRunStore::Open(StatePath("run.log")));
    const absl::StatusOr<std::optional<RunState>> stored = store_->Load();
    if (absl::IsDataLoss(stored.status())) {
      return absl::DataLossError(
          absl::StrCat(stored.status().message(), "; without ", config_.checkpoint_path,
                       "/.weft the run goes on from its last committed version"));
    }
    WEFT_RETURN_IF_ERROR(stored.status());
    WEFT_ASSIGN_OR_RETURN(LocalStart start, ResolveStart(config_, data_, dir_, *stored));
    if (start.is_new && config_.init_path.has_value()) {
      WEFT_ASSIGN_OR_RETURN(init_, LocalInitCheckpoint::Open(config_, data_));
      for (const std::string& what : init_->missing()) {
        start.notes.push_back(absl::StrCat("init_path ", *config_.init_path, " has no ", what,
                                           ": starts with initial values"));
      }
    }
    return start;
  }

  absl::Status Start(LocalStart start) {
    config_.seed = start.state.seed;
    notes_ = std::move(start.notes);
    std::vector<std::string> type_names;
    for (const EntityConfig& type : config_.entities) type_names.push_back(type.name);
    WEFT_ASSIGN_OR_RETURN(blobs_,
                          PartitionFileStore::Open(StatePath("blobs"), type_names, config_.lr));
    checkpoint_ = std::make_unique<LocalCheckpoint>(
        LocalCheckpoint::Options{config_, start.state.run_id, data_.entity_counts,
                                 data_.entities_digest, init_, options_.on_step},
        dir_, blobs_.get());
    checkpoint_->Resume(start.state.position, !start.state.done.empty());
    WEFT_RETURN_IF_ERROR(PrepareVersions(start, &start.state));

    if (start.repairs_pointer) WEFT_RETURN_IF_ERROR(dir_.Commit(start.state.position.pass));
    WEFT_ASSIGN_OR_RETURN(
        coordinator_,
        RunCoordinator::Start(std::move(start.plan), std::move(start.state), store_.get()));
    if (start.committed_meanwhile.has_value()) {
      WEFT_RETURN_IF_ERROR(coordinator_->PassCommitted(*start.committed_meanwhile));
      checkpoint_->BeginPass(coordinator_->progress().position);
    }
    WEFT_RETURN_IF_ERROR(CleanUp());
    lock_ = std::make_unique<LocalLockClient>(coordinator_.get(), checkpoint_.get(),
                                              [this](const CompletePass& pass) { OnCommit(pass); });
    params_ = std::make_unique<LocalParamClient>(checkpoint_.get());
    return absl::OkStatus();
  }

  // The blobs of all current versions are there afterwards; others are not.
  absl::Status PrepareVersions(const LocalStart& start, RunState* state) {
    WEFT_RETURN_IF_ERROR(blobs_->Sweep(UINT64_MAX, state->versions.Roots()));
    // Tokens of a term of their own.
    ++state->term;
    Token token = state->term << kTokenBits;
    if (start.adopts) {
      for (const PartitionKey& key : state->versions.keys()) {
        if (!IsTrained(config_, key.entity_type)) continue;
        WEFT_RETURN_IF_ERROR(blobs_->Adopt(VersionFile(key, state->position.pass), {key, ++token}));
        state->versions.SetCurrent(key, token);
        state->versions.SetCommitted(key, token);
      }
    } else if (start.is_new && init_.has_value()) {
      for (const PartitionKey& key : state->versions.keys()) {
        if (!init_->Has(key.entity_type)) continue;
        WEFT_RETURN_IF_ERROR(PutInitial(key, ++token));
        state->versions.SetCurrent(key, token);
      }
    } else {
      for (const PartitionVersion& version : state->versions.Roots()) {
        WEFT_RETURN_IF_ERROR(RequireBlob(version, *state));
      }
    }
    return absl::OkStatus();
  }

  std::string VersionFile(PartitionKey key, int64_t version) const {
    return dir_.EmbeddingsPath(config_.entities[static_cast<size_t>(key.entity_type)].name,
                               key.partition, version);
  }

  absl::Status PutInitial(PartitionKey key, Token token) {
    const auto type = static_cast<size_t>(key.entity_type);
    EmbeddingPartition partition(data_.entity_counts[type][static_cast<size_t>(key.partition)],
                                 config_.EntityDimension(key.entity_type));
    FillInitialEmbeddings(config_.seed.value(), key, config_.init_scale, 0, partition.count(),
                          &partition.embeddings);
    WEFT_RETURN_IF_ERROR(init_->ReadPartition(key, &partition));
    return blobs_->Store({key, token}, partition);
  }

  // A current or committed version whose blob is gone: the committed one has a second name.
  absl::Status RequireBlob(const PartitionVersion& version, const RunState& state) {
    if (blobs_->Stat(version).ok()) return absl::OkStatus();
    const bool committed = state.versions.committed(version.key) == version.token;
    if (committed && state.position.pass > 0) {
      return blobs_->Adopt(VersionFile(version.key, state.position.pass), version);
    }
    return absl::NotFoundError(absl::StrCat(
        config_.checkpoint_path, ": partition ", version.key.partition, " of ",
        config_.entities[static_cast<size_t>(version.key.entity_type)].name,
        " has been trained in this pass, but its file is missing in .weft/blobs; put it back, or ",
        "remove .weft to continue from version ", state.position.pass));
  }

  absl::Status CleanUp() {
    WEFT_RETURN_IF_ERROR(RemoveLeftovers(config_.checkpoint_path));
    WEFT_RETURN_IF_ERROR(RemoveLeftovers(StatePath("")));
    const RunProgress progress = coordinator_->progress();
    const PassPosition& position = progress.position;
    // What an interrupted attempt to make the next version left.
    if (!coordinator_->complete_pass().has_value()) {
      WEFT_RETURN_IF_ERROR(dir_.Remove(position.pass + 1));
    }
    const bool epoch_begins = position.edge_path == 0 && position.edge_chunk == 0;
    if (epoch_begins && position.pass > 0 && checkpoint_->IsToBePreserved(position.epoch)) {
      WEFT_RETURN_IF_ERROR(checkpoint_->Preserve(position.pass, position.epoch));
    }
    coordinator_->FilesRemoved(checkpoint_->RemoveVersions(coordinator_->obsolete_versions()));
    checkpoint_->Sweep(coordinator_->keep_list());
    const int64_t num_buckets =
        static_cast<int64_t>(config_.NumPartitions(Side::kLhs)) * config_.NumPartitions(Side::kRhs);
    return TrimPassStats(dir_.StatsPath(), position.pass, num_buckets);
  }

  void OnCommit(const CompletePass& pass) {
    const RunProgress progress = coordinator_->progress();
    LogInfo("checkpoint committed", {{"version", pass.version},
                                     {"epoch", pass.position.epoch + 1},
                                     {"edge_path", pass.position.edge_path + 1},
                                     {"edge_chunk", pass.position.edge_chunk + 1}});
    if (progress.done && config_.early_stopping.has_value()) KeepBest(progress);
    if (options_.on_commit != nullptr) options_.on_commit(pass);
  }

  void KeepBest(const RunProgress& progress) {
    const EarlyStoppingState& best = progress.early_stopping;
    if (progress.stopped_early) {
      LogInfo("stopped early", {{"epochs", progress.position.epoch},
                                {"best_epoch", best.best_epoch},
                                {"best_value", best.best_value.value_or(0)}});
    }
    if (best.best_version == 0) return;  // what the run began with has no files
    const absl::Status kept = checkpoint_->Preserve(best.best_version, best.best_epoch);
    if (!kept.ok()) {
      LogWarning("cannot keep the best version", {{"cause", kept.message()}});
    }
  }

  RunConfig config_;
  const Options options_;
  CheckpointDir dir_;
  LocalData data_;
  std::vector<std::string> notes_;
  std::optional<LocalInitCheckpoint> init_;

  // In the order of their construction: later ones use earlier ones.
  std::unique_ptr<LocalFolderLock> folder_lock_;
  std::unique_ptr<FileRunStore> store_;
  std::unique_ptr<PartitionFileStore> blobs_;
  std::unique_ptr<LocalCheckpoint> checkpoint_;
  std::unique_ptr<RunCoordinator> coordinator_;
  std::unique_ptr<LocalLockClient> lock_;
  std::unique_ptr<LocalParamClient> params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRun>> LocalRun::Open(const RunConfig& config, Options options) {
  auto run = std::make_unique<LocalRunImpl>(config, std::move(options));
  WEFT_RETURN_IF_ERROR(run->Open());
  return run;
}

}  // namespace weft
