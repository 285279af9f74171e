#include "services/trainer/cluster/cluster_clients.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "services/common/clock.h"
#include "services/common/place_directory.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/status_macros.h"
#include "services/common/transfer_metrics.h"
#include "services/param_server/cluster_param_client.h"
#include "services/param_server/grpc_param_client.h"
#include "services/partition_server/cluster_partition_client.h"
#include "services/partition_server/grpc_blob_client.h"
#include "services/partition_server/partition_transfer.h"
#include "services/trainer/cluster/client_options.h"
#include "services/trainer/cluster/cluster_edge_source.h"
#include "services/trainer/cluster/reporting_partition_client.h"

namespace weft {
namespace {

class ClusterClientsImpl : public ClusterClients {
 public:
  explicit ClusterClientsImpl(const Options& options)
      : options_(options),
        partition_channels_({.connections = options.streams, .security = options.security}),
        param_channels_(
            {.connections = 1, .security = options.security, .peer = Role::kParamServer}) {}

  absl::Status Connect() {
    GrpcLockClient::Options lock;
    lock.address = options_.lock_server;
    lock.name = options_.name;
    lock.retry = options_.retry;
    lock.security = options_.security;
    WEFT_ASSIGN_OR_RETURN(lock_, GrpcLockClient::Create(std::move(lock), &places_));
    WEFT_ASSIGN_OR_RETURN(session_, lock_->EnsureSession());
    return absl::OkStatus();
  }

  const GrpcLockClient::Session& session() const override { return session_; }

  absl::Status Configure(const RunConfig& config) override {
    GrpcBlobClient::Options blobs;
    blobs.group = &transfers_;
    blobs.metrics = &moved_;
    blobs_.emplace(&partition_channels_, lock_->fence(), blobs);
    PartitionTransfer::Options transfer = TransferOptions(config, options_.retry, options_.streams);
    transfer.on_unreadable = [this](const ShardName& shard, const Place& place,
                                    const absl::Status&) {
      partitions_->NoteUnreadable(shard, place);
    };
    transfer_.emplace(&*blobs_, FindServerIn(&places_), transfers_.flag(), transfer);
    cluster_partitions_.emplace(&places_, &*transfer_);
    partitions_.emplace(
        &*cluster_partitions_, &places_,
        [this](Token token, const PartitionVersion& version, uint32_t shard, const Place& place) {
          return lock_->ReportUnreadable(token, version, shard, place);
        },
        [this](int64_t bytes) { lock_->AddProgress(static_cast<uint64_t>(bytes)); }, options_.retry,
        transfers_.flag());
    if (config.HasClusterEdges()) {
      edges_.emplace(
          ClusterEdgeSource::Options{session_.run.edges_token, config.NumPartitions(Side::kLhs),
                                     config.NumPartitions(Side::kRhs)},
          &places_, &*transfer_, &*partitions_);
    }
    ClusterParamClient::Options params = ParamOptions(config, options_.retry);
    params.transfers = &moved_;
    params_.emplace(
        params, [this] { return ParamSession(); }, Clock::Real());
    return absl::OkStatus();
  }

  GrpcLockClient& lock() override { return *lock_; }
  PartitionClient& partitions() override { return *partitions_; }
  ParamClient& params() override { return *params_; }
  EdgeSource* edges() override { return edges_.has_value() ? &*edges_ : nullptr; }

  void WriteMetrics(MetricsPage* page) const override {
    const auto counter = [&](absl::string_view name, absl::string_view help, int64_t value) {
      page->AddCounter(name, help, {}, static_cast<double>(value));
    };
    const ClusterParamClient::Stats params = params_->stats();
    counter("weft_trainer_sessions_total", "Sessions begun.", lock_->sessions());
    page->AddGauge("weft_trainer_param_staleness_seconds",
                   "Since the last exchange with the parameter server asked longest ago.", {},
                   absl::ToDoubleSeconds(params_->staleness()));
    counter("weft_trainer_param_pushes_total", "Pushes of shared parameters that were answered.",
            params.pushes);
    counter("weft_trainer_param_rounds_total", "Rounds of pushes.", params.rounds);
    counter("weft_trainer_param_lost_pushes_total",
            "Pushes that a server had taken and lost again.", params.lost_pushes);
    counter("weft_trainer_param_stale_waits_total",
            "How often a worker waited because shared parameters were too old.",
            params.stale_waits);
    moved_.Write(page);
  }

  void Cancel() override {
    lock_->Cancel();
    transfers_.Cancel();
  }

 private:
  absl::StatusOr<ClusterParamClient::Session> ParamSession() {
    WEFT_ASSIGN_OR_RETURN(const GrpcLockClient::Session session, lock_->EnsureSession());
    // Which parameter servers there are is known only then.
    WEFT_RETURN_IF_ERROR(lock_->AwaitPrepared());
    ClusterParamClient::Session params;
    params.caller = {session.context, session.incarnation};
    params.status = [this] { return lock_->SessionStatus(); };
    for (const ServerInfo& server : places_.servers().param_servers) {
      WEFT_ASSIGN_OR_RETURN(const auto channel, param_channels_.Get(server.address));
      GrpcParamClient::Options options;
      options.fence = lock_->fence();
      params.servers.push_back(std::make_shared<GrpcParamClient>(server.address, channel, options));
    }
    return params;
  }

  const Options options_;
  PlaceDirectory places_;
  ChannelPool partition_channels_;
  ChannelPool param_channels_;
  CallGroup transfers_;
  TransferMetrics moved_;
  GrpcLockClient::Session session_;
  // In the order of their construction: later ones use earlier ones.
  std::unique_ptr<GrpcLockClient> lock_;
  std::optional<GrpcBlobClient> blobs_;
  std::optional<PartitionTransfer> transfer_;
  std::optional<ClusterPartitionClient> cluster_partitions_;
  std::optional<ReportingPartitionClient> partitions_;
  std::optional<ClusterEdgeSource> edges_;
  std::optional<ClusterParamClient> params_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterClients>> ClusterClients::Connect(const Options& options) {
  auto clients = std::make_unique<ClusterClientsImpl>(options);
  WEFT_RETURN_IF_ERROR(clients->Connect());
  return clients;
}

}  // namespace weft
