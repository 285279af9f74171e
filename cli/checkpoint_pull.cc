#include "cli/checkpoint_pull.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/cluster_run.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "services/common/file_util.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/run_config.h"
#include "services/common/status_macros.h"
#include "services/lock_server/lock_client_convert.h"
#include "services/param_server/param_client.h"
#include "services/param_server/param_snapshot.h"
#include "services/param_server/shared_layout.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/partition_transfer.h"
#include "services/trainer/local/local_folder_lock.h"
#include "services/trainer/local/local_stats_file.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {
namespace {

constexpr absl::Duration kPinFor = absl::Minutes(30);

class Puller {
 public:
  Puller(GrpcOperatorClient* lock_server, const PullOptions& options,
         v1::GetCheckpointResponse checkpoint)
      : lock_server_(lock_server),
        options_(options),
        checkpoint_(std::move(checkpoint)),
        channels_({.connections = 2, .security = options.security}),
        blobs_(&channels_, lock_server->fence(), {}),
        transfer_(&blobs_, [this](const Place& place) { return ServerAt(place); }, &cancel_, {}) {}

  absl::StatusOr<PulledCheckpoint> Run() {
    WEFT_RETURN_IF_ERROR(TakeRun());
    const std::string folder = options_.folder.empty() ? config_.checkpoint_path : options_.folder;
    WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<LocalFolderLock> held,
                          LocalFolderLock::Acquire(folder));
    std::vector<CheckpointDir::EntityType> types;
    for (const EntityConfig& type : config_.entities) {
      types.push_back({type.name, type.num_partitions});
    }
    dir_.emplace(folder, std::move(types));
    // A damaged pointer is put right by the commit.
    const int64_t before = dir_->CommittedVersion().value_or(0);
    WEFT_RETURN_IF_ERROR(PullPartitions());
    WEFT_RETURN_IF_ERROR(PullShared());
    WEFT_RETURN_IF_ERROR(WriteTheRest());
    WEFT_RETURN_IF_ERROR(dir_->Commit(version()));
    if (before > 0 && before != version()) WEFT_RETURN_IF_ERROR(dir_->Remove(before));
    const PassPosition position = FromProto(checkpoint_.manifest().position());
    return PulledCheckpoint{version(), folder, position.epoch, files_};
  }

 private:
  int64_t version() const { return checkpoint_.manifest().version(); }

  absl::Status TakeRun() {
    WEFT_ASSIGN_OR_RETURN(run_, ClusterRunOf(checkpoint_.run()));
    WEFT_ASSIGN_OR_RETURN(servers_, ServerListFromProto(checkpoint_.servers()));
    PreparePass();
    return absl::OkStatus();
  }

  // The pass that made the version: the one before the manifest's position.
  void PreparePass() {
    PassPosition position = FromProto(checkpoint_.manifest().position());
    pass_.version = version();
    --position.pass;
    if (--position.edge_chunk < 0) {
      position.edge_chunk = position.num_edge_chunks - 1;
      if (--position.edge_path < 0) {
        position.edge_path = static_cast<int>(config_.edge_paths.size()) - 1;
        --position.epoch;
        pass_.ends_epoch = true;
      }
    }
    pass_.position = position;
    metadata_.config_json = RunConfigToJson(config_, /*pbg_keys_only=*/true);
    metadata_.num_epochs = config_.num_epochs;
    metadata_.epoch_idx = position.epoch;
    metadata_.num_edge_paths = static_cast<int64_t>(config_.edge_paths.size());
    metadata_.edge_path_idx = position.edge_path;
    metadata_.edge_path = config_.edge_paths[static_cast<size_t>(position.edge_path)];
    metadata_.num_edge_chunks = position.num_edge_chunks;
    metadata_.edge_chunk_idx = position.edge_chunk;
    metadata_.entities_digest = run_.data.entities_digest;
  }

  std::optional<ServerInfo> ServerAt(const Place& place) const {
    for (const ServerInfo& server : servers_.partition_servers) {
      if (server.store_id == place.store_id) return server;
    }
    return std::nullopt;
  }

  void Wrote(const std::string& path) {
    ++files_;
    if (options_.on_file != nullptr) options_.on_file(path);
  }

  absl::Status WriteEmbeddings(PartitionKey key, const EmbeddingPartition& partition) {
    const std::string path = dir_->EmbeddingsPath(
        config_.entities[static_cast<size_t>(key.entity_type)].name, key.partition, version());
    WEFT_RETURN_IF_ERROR(WriteEmbeddingsFile(path, partition, config_.lr, metadata_));
    Wrote(path);
    return absl::OkStatus();
  }

  absl::Status PullPartitions() {
    for (const v1::VersionInfo& proto : checkpoint_.partitions()) {
      const VersionInfo version = FromProto(proto);
      const PartitionKey key = version.version.key;
      const auto type = static_cast<size_t>(key.entity_type);
      if (key.entity_type < 0 || type >= counts_.size() || key.partition < 0 ||
          static_cast<size_t>(key.partition) >= counts_[type].size()) {
        return absl::InvalidArgumentError("the checkpoint names a partition that the run has not");
      }
      const int64_t count = counts_[type][static_cast<size_t>(key.partition)];
      const int dimension = config_.EntityDimension(key.entity_type);
      if (version.version.token == kInitialToken) {
        WEFT_RETURN_IF_ERROR(WriteEmbeddings(
            key, MakeInitialEmbeddings(run_.seed, key, count, dimension, config_.init_scale)));
        continue;
      }
      EmbeddingPartition partition(count, dimension);
      WEFT_RETURN_IF_ERROR(transfer_.Read(version, &partition));
      WEFT_RETURN_IF_ERROR(WriteEmbeddings(key, partition));
    }
    return absl::OkStatus();
  }

  absl::Status PullShared() {
    SharedState state = InitialSharedState(run_);
    for (const v1::VersionInfo& proto : checkpoint_.snapshots()) {
      WEFT_ASSIGN_OR_RETURN(const std::string bytes, ReadBlobs(FromProto(proto)));
      WEFT_ASSIGN_OR_RETURN(const ParamSnapshot snapshot, ParamSnapshot::Decode(bytes));
      WEFT_RETURN_IF_ERROR(FillShared(snapshot, &state));
    }
    for (size_t t = 0; t < counts_.size(); ++t) {
      if (counts_[t].size() != 1) continue;
      WEFT_RETURN_IF_ERROR(
          WriteEmbeddings({static_cast<EntityTypeId>(t), 0}, state.unpartitioned[t]));
    }
    const std::string path = dir_->ModelPath(version());
    WEFT_RETURN_IF_ERROR(WriteModelFile(path, state.parameters,
                                        config_.relation_lr.value_or(config_.lr), metadata_));
    Wrote(path);
    return absl::OkStatus();
  }

  static absl::Status FillShared(const ParamSnapshot& snapshot, SharedState* state) {
    if (snapshot.layout.hash() != SharedLayout::Of(*state).hash()) {
      return absl::FailedPreconditionError("a parameter snapshot is of another model");
    }
    const std::vector<LiveGroup> groups = LiveGroups(state);
    const float* from = snapshot.values.data();
    for (const RowRange& range : snapshot.ranges) {
      const SharedTensor& tensor = snapshot.layout.tensor(range.tensor);
      float* const to = groups[range.tensor / 2].values[range.tensor % 2];
      const int64_t begin = tensor.RowOffset(range.first);
      const int64_t end = std::min(tensor.RowOffset(range.first + range.count), tensor.size);
      std::copy(from, from + (end - begin), to + begin);
      from += end - begin;
    }
    state->parameters.steps = std::max(state->parameters.steps, snapshot.steps);
    return absl::OkStatus();
  }

  // All shards of a version that is no partition, one after the other.
  absl::StatusOr<std::string> ReadBlobs(const VersionInfo& version) {
    std::string bytes;
    for (const ShardInfo& shard : version.shards) {
      absl::Status status = absl::NotFoundError("it lies nowhere");
      const size_t begin = bytes.size();
      for (const Place& place : shard.places) {
        const std::optional<ServerInfo> server = ServerAt(place);
        if (!server.has_value()) continue;
        bytes.resize(begin);
        status = blobs_.Get(server->address, {version.version, shard.shard},
                            {shard.size_bytes, shard.xxh3},
                            [&](int64_t, uint64_t checksum,
                                absl::Span<const absl::string_view> pieces) -> absl::Status {
                              if (SegmentChecksum(pieces) != checksum) {
                                return absl::DataLossError("checksum mismatch");
                              }
                              for (const absl::string_view piece : pieces) {
                                bytes.append(piece.data(), piece.size());
                              }
                              return absl::OkStatus();
                            });
        if (status.ok()) break;
      }
      WEFT_RETURN_IF_ERROR(Annotate(status, "snapshot of the parameters"));
    }
    return bytes;
  }

  absl::Status WriteTheRest() {
    for (const v1::BucketReport& report : checkpoint_.buckets()) {
      DoneBucket done;
      done.stats.bucket = FromProto(report.bucket());
      done.stats.trained_edges = report.trained_edges();
      done.stats.held_out_edges = report.held_out_edges();
      done.stats.train_seconds = report.train_seconds();
      done.stats.train = FromProto(report.train());
      if (report.has_eval_before()) done.stats.eval_before = FromProto(report.eval_before());
      if (report.has_eval_after()) done.stats.eval_after = FromProto(report.eval_after());
      pass_.buckets.push_back(std::move(done));
    }
    const int64_t num_buckets =
        static_cast<int64_t>(config_.NumPartitions(Side::kLhs)) * config_.NumPartitions(Side::kRhs);
    // What was pulled before stays; this pass is there once.
    WEFT_RETURN_IF_ERROR(TrimPassStats(dir_->StatsPath(), pass_.position.pass, num_buckets));
    WEFT_RETURN_IF_ERROR(AppendPassStats(dir_->StatsPath(), pass_, num_buckets));
    WEFT_RETURN_IF_ERROR(WriteFileAtomically(dir_->ConfigPath(), metadata_.config_json));
    return WriteFileAtomically(dir_->WeftConfigPath(),
                               RunConfigToJson(config_, /*pbg_keys_only=*/false));
  }

  GrpcOperatorClient* const lock_server_;
  const PullOptions& options_;
  const v1::GetCheckpointResponse checkpoint_;

  ClusterRun run_;
  const RunConfig& config_ = run_.config;
  const std::vector<std::vector<int64_t>>& counts_ = run_.data.entity_counts;
  ServerList servers_;
  CompletePass pass_;
  CheckpointMetadata metadata_;
  std::optional<CheckpointDir> dir_;
  int64_t files_ = 0;

  CancelFlag cancel_;
  ChannelPool channels_;
  GrpcBlobClient blobs_;
  PartitionTransfer transfer_;
};

}  // namespace

absl::StatusOr<PulledCheckpoint> PullCheckpoint(GrpcOperatorClient* lock_server,
                                                const PullOptions& options) {
  WEFT_ASSIGN_OR_RETURN(v1::GetCheckpointResponse checkpoint,
                        lock_server->GetCheckpoint(options.version));
  const std::string pin = NewRequestId();
  WEFT_RETURN_IF_ERROR(lock_server->Pin(pin, checkpoint.manifest().version(), kPinFor));
  // Asked again: now it stays, and so do its places.
  const int64_t version = checkpoint.manifest().version();
  WEFT_ASSIGN_OR_RETURN(checkpoint, lock_server->GetCheckpoint(version));
  Puller puller(lock_server, options, std::move(checkpoint));
  absl::StatusOr<PulledCheckpoint> pulled = puller.Run();
  lock_server->Unpin(pin).IgnoreError();
  return pulled;
}

}  // namespace weft::cli
