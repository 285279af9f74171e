#include "services/trainer/local/local_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/checkpoint/model_file.h"
#include "services/common/check.h"
#include "services/common/file_util.h"
#include "services/common/logging.h"
#include "services/common/status_macros.h"
#include "services/param_server/shared_snapshot.h"
#include "services/trainer/local/local_stats_file.h"
#include "services/trainer/model/model_parameters.h"

namespace weft {
namespace {

bool HasShared(const SharedState& state) {
  return !state.parameters.empty() ||
         std::ranges::any_of(state.unpartitioned,
                             [](const EmbeddingPartition& table) { return table.count() > 0; });
}

}  // namespace

LocalCheckpoint::LocalCheckpoint(Options options, CheckpointDir dir, PartitionFileStore* blobs)
    : options_(std::move(options)),
      dir_(std::move(dir)),
      blobs_(blobs),
      num_buckets_(static_cast<int64_t>(options_.config.NumPartitions(Side::kLhs)) *
                   options_.config.NumPartitions(Side::kRhs)),
      pbg_config_(RunConfigToJson(options_.config, /*pbg_keys_only=*/true)) {}

void LocalCheckpoint::Resume(const PassPosition& position, bool begun) {
  blobs_->SetMetadata(Metadata(position));
  MutexLock lock(&mu_);
  position_ = position;
  begun_ = begun;
  saved_ = false;
}

void LocalCheckpoint::BeginPass(const PassPosition& position) {
  Resume(position, false);
  // The version has all that the snapshot of the pass before had.
  std::error_code ignored;
  std::filesystem::remove(SnapshotPath(), ignored);
}

std::string LocalCheckpoint::SnapshotPath() const {
  return absl::StrCat(dir_.path(), "/.weft/shared.snapshot");
}

CheckpointMetadata LocalCheckpoint::Metadata(const PassPosition& position) const {
  CheckpointMetadata metadata;
  metadata.config_json = pbg_config_;
  metadata.num_epochs = options_.config.num_epochs;
  metadata.epoch_idx = position.epoch;
  metadata.num_edge_paths = static_cast<int64_t>(options_.config.edge_paths.size());
  metadata.edge_path_idx = position.edge_path;
  metadata.edge_path = options_.config.edge_paths[static_cast<size_t>(position.edge_path)];
  metadata.num_edge_chunks = position.num_edge_chunks;
  metadata.edge_chunk_idx = position.edge_chunk;
  metadata.entities_digest = options_.entities_digest;
  return metadata;
}

void LocalCheckpoint::Step(absl::string_view step) const {
  if (options_.on_step != nullptr) options_.on_step(step);
}

absl::Status LocalCheckpoint::CheckStored(absl::Span<const PartitionVersion> versions) {
  for (const PartitionVersion& version : versions) {
    const absl::Status status = blobs_->Stat(version).status();
    if (absl::IsNotFound(status)) return absl::FailedPreconditionError(status.message());
    WEFT_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

absl::Status LocalCheckpoint::WriteVersion(const CompletePass& pass) {
  const SharedState* live;
  bool saved;
  {
    MutexLock lock(&mu_);
    live = live_;
    // In a pass of one bucket the flush before its release has written the version's files.
    saved = one_bucket() && (saved_ || begun_);
  }
  if (live == nullptr) return absl::FailedPreconditionError("WriteVersion before Load");
  if (!saved) WEFT_RETURN_IF_ERROR(WriteShared(*live, pass.position));
  Step("shared state written");
  WEFT_RETURN_IF_ERROR(LinkPartitions(pass));
  WEFT_RETURN_IF_ERROR(SyncDirectory(dir_.path()));
  Step("partitions written");
  WEFT_RETURN_IF_ERROR(AppendPassStats(dir_.StatsPath(), pass, num_buckets_));
  Step("statistics written");
  WEFT_RETURN_IF_ERROR(WriteFileAtomically(dir_.ConfigPath(), pbg_config_));
  WEFT_RETURN_IF_ERROR(WriteFileAtomically(
      dir_.WeftConfigPath(), RunConfigToJson(options_.config, /*pbg_keys_only=*/false)));
  Step("configuration written");
  WEFT_RETURN_IF_ERROR(dir_.Commit(pass.version));
  Step("version committed");
  const int epochs = pass.position.epoch + 1;
  if (pass.ends_epoch && IsToBePreserved(epochs)) {
    WEFT_RETURN_IF_ERROR(Preserve(pass.version, epochs));
  }
  return absl::OkStatus();
}

absl::Status LocalCheckpoint::WriteShared(const SharedState& live, const PassPosition& position) {
  const int64_t version = position.pass + 1;
  const CheckpointMetadata metadata = Metadata(position);
  const RunConfig& config = options_.config;
  for (size_t type = 0; type < live.unpartitioned.size(); ++type) {
    if (!IsShared(type)) continue;
    WEFT_RETURN_IF_ERROR(
        WriteEmbeddingsFile(dir_.EmbeddingsPath(config.entities[type].name, 0, version),
                            live.unpartitioned[type], config.lr, metadata));
  }
  return WriteModelFile(dir_.ModelPath(version), live.parameters,
                        config.relation_lr.value_or(config.lr), metadata);
}

absl::Status LocalCheckpoint::LinkPartitions(const CompletePass& pass) const {
  for (const PartitionVersion& version : pass.versions) {
    if (!IsTrained(options_.config, version.key.entity_type)) continue;
    if (version.token == kInitialToken) {
      WEFT_RETURN_IF_ERROR(WriteInitialPartition(version.key, pass));
      continue;
    }
    const auto& type = options_.config.entities[static_cast<size_t>(version.key.entity_type)];
    WEFT_RETURN_IF_ERROR(blobs_->LinkTo(
        version, dir_.EmbeddingsPath(type.name, version.key.partition, pass.version)));
  }
  return absl::OkStatus();
}

absl::Status LocalCheckpoint::WriteInitialPartition(PartitionKey key,
                                                    const CompletePass& pass) const {
  const RunConfig& config = options_.config;
  const auto type = static_cast<size_t>(key.entity_type);
  const std::string path =
      dir_.EmbeddingsPath(config.entities[type].name, key.partition, pass.version);
  // The version before has the same initial embeddings, if it was not the first.
  const std::string before =
      dir_.EmbeddingsPath(config.entities[type].name, key.partition, pass.version - 1);
  if (pass.version > 1 && LinkFile(before, path).ok()) return absl::OkStatus();
  const EmbeddingPartition initial = MakeInitialEmbeddings(
      config.seed.value(), key, options_.entity_counts[type][static_cast<size_t>(key.partition)],
      config.EntityDimension(key.entity_type), config.init_scale);
  return WriteEmbeddingsFile(path, initial, config.lr, Metadata(pass.position));
}

std::vector<int64_t> LocalCheckpoint::RemoveVersions(absl::Span<const int64_t> versions) {
  Step("pass recorded");
  std::vector<int64_t> removed;
  for (const int64_t version : versions) {
    const absl::Status status = dir_.Remove(version);
    if (status.ok()) {
      removed.push_back(version);
    } else if (absl::IsFailedPrecondition(status)) {
      LogInfo("a version is kept until the next pass", {{"cause", status.message()}});
    } else {
      LogWarning("cannot remove a version, will try again",
                 {{"version", version}, {"cause", status.message()}});
    }
  }
  Step("old versions removed");
  return removed;
}

void LocalCheckpoint::Sweep(const KeepList& list) {
  const absl::Status status = blobs_->Sweep(list.high_water, list.keep);
  if (!status.ok()) {
    LogWarning("cannot remove an old partition", {{"cause", status.message()}});
  }
}

absl::Status LocalCheckpoint::Load(SharedState* live) {
  PassPosition position;
  bool begun;
  bool saved;
  {
    MutexLock lock(&mu_);
    live_ = live;
    position = position_;
    begun = begun_;
    saved = saved_;
  }
  if (!HasShared(*live)) return absl::OkStatus();
  if (begun && one_bucket()) return ReadShared(position.pass + 1, live);
  if (begun || (saved && !one_bucket())) {
    return ReadSharedSnapshot(SnapshotPath(), {options_.run_id, position.pass}, live);
  }
  return position.pass > 0 ? ReadShared(position.pass, live) : InitialiseShared(live);
}

absl::Status LocalCheckpoint::Save(const SharedState& live) {
  PassPosition position;
  {
    MutexLock lock(&mu_);
    position = position_;
  }
  if (one_bucket()) {
    WEFT_RETURN_IF_ERROR(WriteShared(live, position));
  } else if (HasShared(live)) {
    WEFT_RETURN_IF_ERROR(
        WriteSharedSnapshot(SnapshotPath(), {options_.run_id, position.pass}, live));
  }
  Step("flushed");
  MutexLock lock(&mu_);
  saved_ = true;
  return absl::OkStatus();
}

absl::Status LocalCheckpoint::ReadShared(int64_t version, SharedState* live) const {
  WEFT_RETURN_IF_ERROR(ReadModelFile(dir_.ModelPath(version), &live->parameters));
  for (size_t type = 0; type < live->unpartitioned.size(); ++type) {
    if (!IsShared(type)) continue;
    WEFT_RETURN_IF_ERROR(
        ReadEmbeddingsFile(dir_.EmbeddingsPath(options_.config.entities[type].name, 0, version),
                           &live->unpartitioned[type]));
  }
  return absl::OkStatus();
}

absl::Status LocalCheckpoint::InitialiseShared(SharedState* live) const {
  const RunConfig& config = options_.config;
  for (size_t type = 0; type < live->unpartitioned.size(); ++type) {
    EmbeddingPartition& table = live->unpartitioned[type];
    if (!IsShared(type)) continue;
    FillInitialEmbeddings(config.seed.value(), {static_cast<EntityTypeId>(type), 0},
                          config.init_scale, 0, table.count(), &table.embeddings);
  }
  return options_.init.has_value() ? options_.init->ReadShared(live) : absl::OkStatus();
}

absl::Status LocalCheckpoint::Preserve(int64_t version, int epoch) {
  return dir_.Preserve(version, epoch, pbg_config_);
}

bool LocalCheckpoint::IsToBePreserved(int epochs) const {
  const auto& interval = options_.config.checkpoint_preservation_interval;
  return interval.has_value() && *interval > 0 && epochs > 0 && epochs % *interval == 0;
}

}  // namespace weft
