#include "cli/checkpoint_push.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/cluster_run.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "graph/checkpoint/embeddings_file.h"
#include "graph/checkpoint/model_file.h"
#include "services/common/file_util.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"
#include "services/lock_server/lock_client_convert.h"
#include "services/param_server/param_snapshot.h"
#include "services/param_server/shared_layout.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/partition_transfer.h"
#include "services/trainer/local/local_init_checkpoint.h"
#include "services/trainer/local/local_start.h"
#include "services/trainer/local/local_stats_file.h"
#include "services/trainer/model/model_parameters.h"

namespace weft::cli {
namespace {

constexpr absl::Duration kCommitWait = absl::Seconds(5);
// About 300 bytes each; a message has at most 4 MB.
constexpr size_t kMaxBuckets = 8192;

PartitionTransfer::Options TransferOptions(const PushOptions& options) {
  PartitionTransfer::Options transfer;
  transfer.retry = options.retry;
  return transfer;
}

// All of `state`, as if one parameter server held it.
ParamSnapshot SnapshotOf(SharedState* state) {
  ParamSnapshot snapshot;
  snapshot.steps = state->parameters.steps;
  snapshot.layout = SharedLayout::Of(*state);
  const std::vector<LiveGroup> groups = LiveGroups(state);
  const auto& tensors = snapshot.layout.tensors();
  const int64_t floats =
      std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                      [](int64_t sum, const SharedTensor& tensor) { return sum + tensor.size; });
  snapshot.values = FloatBlock(1, floats);
  float* to = snapshot.values.data();
  for (uint32_t t = 0; t < snapshot.layout.num_tensors(); ++t) {
    const SharedTensor& tensor = tensors[t];
    snapshot.ranges.push_back({t, 0, tensor.rows});
    to = std::copy_n(groups[t / 2].values[t % 2], tensor.size, to);
  }
  return snapshot;
}

class Pusher {
 public:
  Pusher(GrpcOperatorClient* lock_server, const PushOptions& options, CancelFlag* cancel)
      : lock_server_(lock_server),
        options_(options),
        channels_({.connections = 2, .security = options.security}),
        blobs_(&channels_, lock_server->fence(), {}),
        transfer_(
            &blobs_, [](const Place&) { return std::nullopt; }, cancel, TransferOptions(options)) {}

  absl::StatusOr<PushedVersion> Run() {
    WEFT_ASSIGN_OR_RETURN(const v1::GetRunStateResponse now, lock_server_->GetRunState(false));
    WEFT_ASSIGN_OR_RETURN(run_, ClusterRunOf(now.run()));
    position_.num_edge_chunks = now.position().num_edge_chunks();
    WEFT_RETURN_IF_ERROR(OpenFolder());
    shared_ = InitialSharedState(run_);
    WEFT_RETURN_IF_ERROR(options_.beginning ? OpenBeginning() : OpenVersion());
    request_id_ = RequestId();
    WEFT_ASSIGN_OR_RETURN(const v1::BeginPushResponse begun, lock_server_->BeginPush(request_id_));
    pushed_.version = dir_version_;
    pushed_.already = begun.committed();
    if (pushed_.already) return pushed_;
    token_ = begun.token();
    WEFT_RETURN_IF_ERROR(PushPartitions());
    WEFT_RETURN_IF_ERROR(PushShared());
    WEFT_RETURN_IF_ERROR(Commit());
    return pushed_;
  }

 private:
  absl::Status OpenFolder() {
    std::vector<CheckpointDir::EntityType> types;
    for (size_t t = 0; t < run_.config.entities.size(); ++t) {
      if (!IsTrained(run_.config, static_cast<EntityTypeId>(t))) continue;
      types.push_back({run_.config.entities[t].name, run_.config.entities[t].num_partitions});
    }
    // Which files make it whole is asked later, when they have been compared with the run.
    WEFT_ASSIGN_OR_RETURN(CheckpointDir::PinnedVersion pinned,
                          CheckpointDir(options_.folder, {}).PinCommittedVersion());
    // Files made by hand have no version; only a beginning can do with them.
    if (pinned.version == 0 && !options_.beginning) {
      return absl::NotFoundError(absl::StrCat(options_.folder, ": has no committed checkpoint"));
    }
    pin_ = std::move(pinned.pin);
    dir_version_ = pinned.version;
    dir_.emplace(options_.folder, std::move(types));
    return absl::OkStatus();
  }

  // The whole of a run that goes on: as if it went on on this machine, with the run's
  // configuration.
  absl::Status OpenVersion() {
    RunConfig config = run_.config;
    config.checkpoint_path = options_.folder;
    config.num_edge_chunks = position_.num_edge_chunks;
    config.seed.reset();
    WEFT_ASSIGN_OR_RETURN(const LocalStart start,
                          ResolveStart(config, run_.data, *dir_, std::nullopt));
    for (const std::string& note : start.notes) Note(note);
    if (start.state.position.pass != dir_version_) {
      return absl::FailedPreconditionError(
          absl::StrCat(options_.folder, ": has changed meanwhile; push it again"));
    }
    position_ = start.state.position;
    NoteSeed();
    WEFT_RETURN_IF_ERROR(ReadModelFile(dir_->ModelPath(dir_version_), &shared_.parameters));
    for (size_t t = 0; t < shared_.unpartitioned.size(); ++t) {
      if (!IsShared(t) || !IsTrained(run_.config, static_cast<EntityTypeId>(t))) continue;
      WEFT_RETURN_IF_ERROR(
          ReadEmbeddingsFile(dir_->EmbeddingsPath(run_.config.entities[t].name, 0, dir_version_),
                             &shared_.unpartitioned[t]));
    }
    return absl::OkStatus();
  }

  // Which edges are held out follows from the seed.
  void NoteSeed() const {
    const absl::StatusOr<std::string> json = ReadFile(dir_->WeftConfigPath());
    if (!json.ok() || run_.config.eval_fraction == 0) return;
    const absl::StatusOr<ConfigResult> stored = ParseRunConfig(*json, dir_->WeftConfigPath());
    if (!stored.ok() || stored->config.seed.value_or(run_.seed) == run_.seed) return;
    Note(absl::StrCat("seed: the checkpoint's is ", *stored->config.seed, ", the run's ", run_.seed,
                      ": other edges are held out than before; a run with \"seed\": ",
                      *stored->config.seed, " holds out the same ones"));
  }

  absl::Status OpenBeginning() {
    RunConfig config = run_.config;
    config.init_path = options_.folder;
    WEFT_ASSIGN_OR_RETURN(LocalInitCheckpoint beginning,
                          LocalInitCheckpoint::Open(config, run_.data));
    for (const std::string& missing : beginning.missing()) {
      Note(absl::StrCat(options_.folder, " has no ", missing, ": it starts with initial values"));
    }
    beginning_ = std::move(beginning);
    return beginning_->ReadShared(&shared_);
  }

  void Note(const std::string& note) const {
    if (options_.on_note != nullptr) options_.on_note(note);
  }

  bool IsShared(size_t type) const { return run_.data.entity_counts[type].size() == 1; }

  // Of what is pushed how: the same folder, as long as its files are not written anew.
  std::string RequestId() const {
    std::string what = absl::StrCat(dir_version_, options_.beginning ? " beginning" : "");
    const auto add = [&](const std::string& path) {
      std::error_code ignored;
      const auto size = std::filesystem::file_size(path, ignored);
      const auto time = std::filesystem::last_write_time(path, ignored).time_since_epoch().count();
      absl::StrAppend(&what, "\n", std::filesystem::path(path).filename().string(), " ", size, " ",
                      time);
    };
    add(dir_->ModelPath(dir_version_));
    for (size_t t = 0; t < run_.config.entities.size(); ++t) {
      for (int i = 0; i < run_.config.entities[t].num_partitions; ++i) {
        add(dir_->EmbeddingsPath(run_.config.entities[t].name, i, dir_version_));
      }
    }
    return absl::StrFormat("push-%016x", XXH3_64bits(what.data(), what.size()));
  }

  absl::Status ReadPartition(PartitionKey key, EmbeddingPartition* partition) const {
    if (beginning_.has_value()) {
      // Entities that it does not have begin as in any run.
      FillInitialEmbeddings(run_.seed, key, run_.config.init_scale, 0, partition->count(),
                            &partition->embeddings);
      return beginning_->ReadPartition(key, partition);
    }
    const auto type = static_cast<size_t>(key.entity_type);
    return ReadEmbeddingsFile(
        dir_->EmbeddingsPath(run_.config.entities[type].name, key.partition, dir_version_),
        partition);
  }

  absl::Status PushPartitions() {
    std::vector<PartitionKey> keys;
    for (size_t t = 0; t < run_.data.entity_counts.size(); ++t) {
      const auto type = static_cast<EntityTypeId>(t);
      const bool has =
          beginning_.has_value() ? beginning_->Has(type) : IsTrained(run_.config, type);
      if (IsShared(t) || !has) continue;
      for (size_t i = 0; i < run_.data.entity_counts[t].size(); ++i) {
        keys.push_back({type, static_cast<PartitionId>(i)});
      }
    }
    for (const PartitionKey& key : keys) {
      const std::vector<int64_t>& counts =
          run_.data.entity_counts[static_cast<size_t>(key.entity_type)];
      EmbeddingPartition partition(counts[static_cast<size_t>(key.partition)],
                                   run_.config.EntityDimension(key.entity_type));
      WEFT_RETURN_IF_ERROR(ReadPartition(key, &partition));
      WEFT_ASSIGN_OR_RETURN(
          const VersionInfo stored,
          transfer_.Store({key, token_}, partition, [&] { return Targets(key.partition); }));
      WEFT_RETURN_IF_ERROR(Tell(stored));
      ++pushed_.partitions;
      if (options_.on_progress != nullptr) {
        options_.on_progress(pushed_.partitions, static_cast<int64_t>(keys.size()));
      }
    }
    return absl::OkStatus();
  }

  absl::Status PushShared() {
    ParamSnapshot snapshot = SnapshotOf(&shared_);
    const RunContext known = lock_server_->fence()->known();
    snapshot.run_id = known.run_id;
    snapshot.generation = known.generation.value_or(0);
    snapshot.first_open_pass = position_.pass;
    std::string bytes;
    bytes.reserve(snapshot.EncodedBytes());
    WEFT_RETURN_IF_ERROR(snapshot.Encode([&](std::string_view piece) {
      bytes.append(piece);
      return absl::OkStatus();
    }));
    VersionInfo stored = {{{kSnapshotType, 0}, token_}, {ShardInfo{}}};
    WEFT_RETURN_IF_ERROR(transfer_.StoreShard(
        stored.version, bytes, [this] { return Targets(0); }, &stored.shards.front()));
    return Tell(stored);
  }

  absl::Status Tell(const VersionInfo& stored) {
    for (const ShardInfo& shard : stored.shards) pushed_.bytes += shard.size_bytes;
    v1::AddPushedRequest added;
    added.set_token(token_);
    *added.add_versions() = ToProto(stored);
    return lock_server_->AddPushed(std::move(added));
  }

  // Servers come and go, also while one waits for them. Each partition begins at another one.
  absl::StatusOr<StoreTargets> Targets(PartitionId partition) {
    WEFT_ASSIGN_OR_RETURN(const v1::BeginPushResponse now, lock_server_->BeginPush(request_id_));
    if (now.token() != token_) {
      return absl::AbortedError("another push has taken the place of this one");
    }
    WEFT_ASSIGN_OR_RETURN(const ServerList servers, ServerListFromProto(now.servers()));
    if (servers.partition_servers.empty()) {
      return absl::UnavailableError("no partition server is registered");
    }
    StoreTargets targets = {servers.partition_servers, static_cast<int>(now.replicas())};
    const auto turn = static_cast<size_t>(partition) % targets.servers.size();
    std::rotate(targets.servers.begin(), targets.servers.begin() + static_cast<ptrdiff_t>(turn),
                targets.servers.end());
    return targets;
  }

  absl::Status Commit() {
    v1::CommitPushRequest request;
    request.set_request_id(request_id_);
    request.set_token(token_);
    if (!options_.beginning) {
      request.set_version(dir_version_);
      const int64_t num_buckets =
          int64_t{run_.config.NumPartitions(Side::kLhs)} * run_.config.NumPartitions(Side::kRhs);
      WEFT_ASSIGN_OR_RETURN(const std::vector<BucketStats> buckets,
                            ReadPassStats(dir_->StatsPath(), dir_version_ - 1, num_buckets));
      if (buckets.size() > kMaxBuckets) {
        Note("the statistics of its last pass are left out: there are too many buckets");
      } else {
        for (const BucketStats& stats : buckets) {
          *request.add_buckets() = BucketReportToProto(stats);
        }
      }
    }
    *request.mutable_position() = ToProto(position_);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(const v1::CommitPushResponse answer,
                            lock_server_->CommitPush(request, kCommitWait));
      if (answer.committed()) return absl::OkStatus();
    }
  }

  GrpcOperatorClient* const lock_server_;
  const PushOptions& options_;
  ChannelPool channels_;
  GrpcBlobClient blobs_;
  PartitionTransfer transfer_;
  ClusterRun run_;
  std::optional<CheckpointDir> dir_;
  std::optional<VersionPin> pin_;  // its training may go on meanwhile
  int64_t dir_version_ = 0;
  std::optional<LocalInitCheckpoint> beginning_;
  SharedState shared_;
  PassPosition position_;  // that the run goes on from
  std::string request_id_;
  Token token_ = kInitialToken;
  PushedVersion pushed_;
};

}  // namespace

absl::StatusOr<PushedVersion> PushCheckpoint(GrpcOperatorClient* lock_server,
                                             const PushOptions& options, CancelFlag* cancel) {
  return Pusher(lock_server, options, cancel).Run();
}

}  // namespace weft::cli
