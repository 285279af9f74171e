#include "cli/edge_upload.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "graph/dataset_manifest.h"
#include "graph/edge_bucket_file.h"
#include "graph/edge_codec.h"
#include "services/common/featurized_relations.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"
#include "services/lock_server/lock_client_convert.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/partition_transfer.h"
#include "services/trainer/local/local_data.h"

namespace weft::cli {
namespace {

// What one call tells the lock server about: far below gRPC's limit of a message.
constexpr size_t kShardsPerCall = 4096;

PartitionTransfer::Options TransferOptions(const EdgeUploadOptions& options) {
  PartitionTransfer::Options transfer;
  transfer.retry = options.retry;
  return transfer;
}

class Uploader {
 public:
  Uploader(GrpcOperatorClient* lock_server, const RunConfig& config,
           const EdgeUploadOptions& options, CancelFlag* cancel)
      : lock_server_(lock_server),
        config_(config),
        local_(WithLocalEdges(config)),
        options_(options),
        channels_({.connections = 2, .security = options.security}),
        blobs_(&channels_, lock_server->fence(), {}),
        transfer_(
            &blobs_, [](const Place&) { return std::nullopt; }, cancel, TransferOptions(options)) {}

  absl::StatusOr<EdgeUpload> Run() {
    WEFT_ASSIGN_OR_RETURN(data_, ReadLocalData(local_));
    MakeRequest();
    WEFT_ASSIGN_OR_RETURN(const v1::BeginImportResponse begun, lock_server_->BeginImport(request_));
    if (begun.complete()) {
      upload_.already = true;
      return upload_;
    }
    added_.set_token(begun.token());
    for (size_t path = 0; path < data_.edge_paths.size(); ++path) {
      WEFT_RETURN_IF_ERROR(UploadPath(static_cast<int>(path)));
    }
    WEFT_RETURN_IF_ERROR(TellBuckets());
    WEFT_RETURN_IF_ERROR(lock_server_->CompleteImport(begun.token()));
    return upload_;
  }

 private:
  void MakeRequest() {
    for (size_t i = 0; i < data_.edge_paths.size(); ++i) {
      v1::ImportedEdges* const path = request_.add_edge_paths();
      path->set_edge_path(config_.edge_paths[i]);
      path->set_digest(data_.edge_paths[i].digest);
      int64_t buckets = 0;
      int64_t edges = 0;
      for (const int64_t in_bucket : data_.edge_paths[i].bucket_edges) {
        buckets += in_bucket > 0 ? 1 : 0;
        edges += in_bucket;
      }
      path->set_buckets(buckets);
      path->set_edges(edges);
      upload_.buckets += buckets;
      upload_.edges += edges;
    }
    for (size_t t = 0; t < data_.entity_counts.size(); ++t) {
      v1::EntityTypeCounts* const type = request_.add_entity_types();
      type->set_name(config_.entities[t].name);
      for (const int64_t count : data_.entity_counts[t]) type->add_counts(count);
    }
    request_.set_num_dynamic_relations(data_.num_dynamic_relations);
    request_.set_entities_digest(data_.entities_digest);
    for (const auto& [key, value] : SchemaSettings(DatasetSchemaOf(config_))) {
      request_.add_schema(absl::StrCat(key, "=", value));
    }
  }

  absl::Status UploadPath(int path) {
    const int num_lhs = config_.NumPartitions(Side::kLhs);
    const int num_rhs = config_.NumPartitions(Side::kRhs);
    auto in_bucket = data_.edge_paths[static_cast<size_t>(path)].bucket_edges.begin();
    for (PartitionId lhs = 0; lhs < num_lhs; ++lhs) {
      for (PartitionId rhs = 0; rhs < num_rhs; ++rhs) {
        const int64_t edges = *in_bucket++;
        if (edges == 0) continue;
        VersionInfo bucket = {EdgesVersion(added_.token(), path, {lhs, rhs}, num_lhs, num_rhs), {}};
        WEFT_RETURN_IF_ERROR(UploadBucket(path, {lhs, rhs}, edges, &bucket));
        *added_.add_buckets() = ToProto(bucket);
        added_shards_ += bucket.shards.size();
        if (added_shards_ >= kShardsPerCall) WEFT_RETURN_IF_ERROR(TellBuckets());
      }
    }
    return absl::OkStatus();
  }

  absl::Status UploadBucket(int path, Bucket bucket, int64_t edges, VersionInfo* stored) {
    // Ids are checked by those who train on them.
    constexpr int64_t kAny = std::numeric_limits<int32_t>::max();
    const std::vector<int64_t> counts(config_.relations.size(), kAny);
    const std::vector<uint8_t> lhs_featurized = FeaturizedRelations(config_, Side::kLhs);
    const std::vector<uint8_t> rhs_featurized = FeaturizedRelations(config_, Side::kRhs);
    const EdgeLimits limits = {
        config_.dynamic_relations ? kAny : static_cast<int64_t>(config_.relations.size()), counts,
        counts, lhs_featurized, rhs_featurized};
    const std::string& folder = local_.edge_paths[static_cast<size_t>(path)];
    const int64_t shard_bytes = PartitionTransfer::Options().shard_bytes;
    int64_t shard_edges = shard_bytes / EdgeBytes(true);
    for (int64_t first = 0; first < edges;) {
      const int64_t last = std::min(edges, first + shard_edges);
      WEFT_ASSIGN_OR_RETURN(const EdgeList list, ReadEdges(folder, bucket, first, last, limits));
      const std::string bytes = EncodeEdges(list);
      const auto size = static_cast<int64_t>(bytes.size());
      if (size > shard_bytes && last - first > 1) {
        // Many features: so few edges that they fit.
        shard_edges = std::max<int64_t>(1, (last - first) * shard_bytes / size * 9 / 10);
        continue;
      }
      ShardInfo& shard = stored->shards.emplace_back();
      shard.shard = static_cast<uint32_t>(stored->shards.size() - 1);
      shard.first_row = first;
      shard.num_rows = last - first;
      WEFT_RETURN_IF_ERROR(transfer_.StoreShard(
          stored->version, bytes, [&] { return Targets(stored->version); }, &shard));
      upload_.bytes += shard.size_bytes;
      done_edges_ += shard.num_rows;
      if (options_.on_progress) options_.on_progress(done_edges_, upload_.edges);
      first = last;
    }
    return absl::OkStatus();
  }

  // Servers come and go, also while one waits for them.
  absl::StatusOr<StoreTargets> Targets(const PartitionVersion& version) {
    WEFT_ASSIGN_OR_RETURN(const v1::BeginImportResponse now, lock_server_->BeginImport(request_));
    if (now.token() != added_.token()) {
      return absl::AbortedError("another import has taken the place of this one");
    }
    WEFT_ASSIGN_OR_RETURN(const ServerList servers, ServerListFromProto(now.servers()));
    StoreTargets targets = {servers.partition_servers, static_cast<int>(now.replicas())};
    if (targets.servers.empty()) {
      return absl::UnavailableError("no partition server is registered");
    }
    // Each bucket begins at another store.
    const auto turn = static_cast<size_t>(version.key.partition) % targets.servers.size();
    std::rotate(targets.servers.begin(), targets.servers.begin() + static_cast<ptrdiff_t>(turn),
                targets.servers.end());
    return targets;
  }

  absl::Status TellBuckets() {
    if (added_.buckets().empty()) return absl::OkStatus();
    WEFT_RETURN_IF_ERROR(lock_server_->AddEdges(added_));
    added_.clear_buckets();
    added_shards_ = 0;
    return absl::OkStatus();
  }

  GrpcOperatorClient* const lock_server_;
  const RunConfig& config_;
  const RunConfig local_;
  const EdgeUploadOptions& options_;
  ChannelPool channels_;
  GrpcBlobClient blobs_;
  PartitionTransfer transfer_;
  LocalData data_;
  v1::BeginImportRequest request_;
  v1::AddEdgesRequest added_;  // since the last call
  size_t added_shards_ = 0;
  EdgeUpload upload_;
  int64_t done_edges_ = 0;
};

}  // namespace

RunConfig WithLocalEdges(RunConfig config) {
  for (std::string& path : config.edge_paths) {
    absl::string_view name = path;
    if (!absl::ConsumePrefix(&name, kClusterPathPrefix)) continue;
    path = absl::StrCat(config.entity_path, "/edges/", name);
  }
  return config;
}

absl::StatusOr<EdgeUpload> UploadEdges(GrpcOperatorClient* lock_server, const RunConfig& config,
                                       const EdgeUploadOptions& options, CancelFlag* cancel) {
  return Uploader(lock_server, config, options, cancel).Run();
}

}  // namespace weft::cli
