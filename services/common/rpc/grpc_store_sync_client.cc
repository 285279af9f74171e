#include "services/common/rpc/grpc_store_sync_client.h"

#include <string>
#include <utility>
#include <vector>

#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

v1::OrderResult ResultToProto(const OrderResult& result) {
  v1::OrderResult proto;
  proto.set_order_id(result.order_id);
  proto.set_code(static_cast<int32_t>(result.status.code()));
  proto.set_message(std::string(result.status.message()));
  if (result.stored.has_value()) *proto.mutable_stored() = ToProto(*result.stored);
  return proto;
}

v1::StoreSyncRequest MakeRequest(const RunContext& context, const StoreReport& report,
                                 uint64_t known_revision, absl::Duration wait) {
  v1::StoreSyncRequest request;
  *request.mutable_context() = ToProto(context);
  *request.mutable_server() = ToProto(report.server);
  request.set_free_bytes(report.free_bytes);
  if (report.server.role == ServerRole::kParam) {
    request.mutable_params()->set_generation(report.params.generation);
    request.mutable_params()->set_first_open_pass(report.params.first_open_pass);
    request.mutable_params()->mutable_joined()->Add(report.params.joined.begin(),
                                                    report.params.joined.end());
  }
  for (const OrderResult& result : report.results) *request.add_results() = ResultToProto(result);
  for (const ShardName& name : report.persisted) *request.add_persisted() = ToProto(name);
  request.set_known_revision(known_revision);
  request.set_wait_ms(absl::ToInt64Milliseconds(wait));
  return request;
}

template <typename Protos>
std::vector<VersionInfo> VersionsFromProto(const Protos& protos) {
  std::vector<VersionInfo> versions;
  for (const v1::VersionInfo& proto : protos) versions.push_back(FromProto(proto));
  return versions;
}

absl::StatusOr<StoreOrder> OrderFromProto(const v1::StoreOrder& proto) {
  switch (proto.order_case()) {
    case v1::StoreOrder::kRestoreParameters: {
      const v1::RestoreParameters& order = proto.restore_parameters();
      return RestoreParameters{order.generation(), VersionsFromProto(order.snapshots()),
                               order.first_open_pass(), order.server_index(), order.num_servers()};
    }
    case v1::StoreOrder::kCutParameters:
      return CutParameters{proto.cut_parameters().generation(),
                           proto.cut_parameters().first_open_pass()};
    case v1::StoreOrder::kStoreSnapshot: {
      const v1::StoreSnapshot& order = proto.store_snapshot();
      StoreSnapshot snapshot;
      snapshot.version = FromProto(order.version());
      if (order.has_first_open_pass()) snapshot.first_open_pass = order.first_open_pass();
      snapshot.store_at = {order.store_at().begin(), order.store_at().end()};
      snapshot.replicas = static_cast<int>(order.replicas());
      return snapshot;
    }
    case v1::StoreOrder::kPersistShards: {
      PersistShards order;
      for (const v1::ShardName& name : proto.persist_shards().shards()) {
        order.shards.push_back(FromProto(name));
      }
      return order;
    }
    case v1::StoreOrder::kCopyShard:
      return CopyShard{FromProto(proto.copy_shard().version()),
                       FromProto(proto.copy_shard().shard())};
    case v1::StoreOrder::kVerifyShard:
      return VerifyShard{FromProto(proto.verify_shard().shard())};
    case v1::StoreOrder::kStoreManifest:
      return StoreManifest{FromProto(proto.store_manifest().version()),
                           proto.store_manifest().manifest()};
    case v1::StoreOrder::ORDER_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("the lock server gave an order that is not known here");
}

absl::StatusOr<std::vector<ServerInfo>> ServersFromProto(
    const google::protobuf::RepeatedPtrField<v1::ServerInfo>& protos) {
  std::vector<ServerInfo> servers;
  for (const v1::ServerInfo& proto : protos) {
    WEFT_ASSIGN_OR_RETURN(ServerInfo server, FromProto(proto));
    servers.push_back(std::move(server));
  }
  return servers;
}

absl::StatusOr<StoreSyncClient::Answer> AnswerFromProto(const v1::StoreSyncResponse& response) {
  StoreSyncClient::Answer answer;
  answer.context = FromProto(response.context());
  StoreInstructions& instructions = answer.instructions;
  instructions.revision = response.revision();
  if (response.phase() < v1::RUN_PHASE_PREPARING || response.phase() > v1::RUN_PHASE_DONE) {
    return absl::InvalidArgumentError("the lock server is in a phase that is not known here");
  }
  instructions.phase = static_cast<RunPhase>(response.phase());
  instructions.servers.revision = response.servers().revision();
  WEFT_ASSIGN_OR_RETURN(instructions.servers.partition_servers,
                        ServersFromProto(response.servers().partition_servers()));
  WEFT_ASSIGN_OR_RETURN(instructions.servers.param_servers,
                        ServersFromProto(response.servers().param_servers()));
  if (response.has_keep_list()) {
    KeepList& list = instructions.keep_list.emplace();
    list.high_water = response.keep_list().high_water();
    for (const v1::PartitionVersion& version : response.keep_list().keep()) {
      list.keep.push_back(FromProto(version));
    }
    list.keep_tokens.assign(response.keep_list().keep_tokens().begin(),
                            response.keep_list().keep_tokens().end());
  }
  for (const v1::StoreOrder& proto : response.orders()) {
    WEFT_ASSIGN_OR_RETURN(StoreOrder order, OrderFromProto(proto));
    instructions.orders.push_back({proto.order_id(), std::move(order)});
  }
  if (response.has_run()) {
    StoreRunInfo& run = answer.run.emplace();
    run.config_json = response.run().config_json();
    run.seed = response.run().seed();
    for (const v1::EntityTypeCounts& type : response.run().entity_types()) {
      run.entity_counts.emplace_back(type.counts().begin(), type.counts().end());
    }
    run.num_dynamic_relations = response.run().num_dynamic_relations();
  }
  instructions.ended_sessions = {response.ended_sessions().begin(),
                                 response.ended_sessions().end()};
  return answer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcStoreSyncClient>> GrpcStoreSyncClient::Connect(
    const std::string& address, const SecurityOptions& security) {
  WEFT_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                        MakeChannel(address, Role::kLockServer, security));
  return std::unique_ptr<GrpcStoreSyncClient>(
      new GrpcStoreSyncClient(v1::LockService::NewStub(channel)));
}

absl::StatusOr<StoreSyncClient::Answer> GrpcStoreSyncClient::Sync(const RunContext& context,
                                                                  const StoreReport& report,
                                                                  uint64_t known_revision,
                                                                  absl::Duration wait) {
  const auto group = std::make_shared<CallGroup>();
  {
    MutexLock lock(&mu_);
    if (std::exchange(interrupted_, false)) return absl::CancelledError("interrupted");
    call_ = group;
  }
  const v1::StoreSyncRequest request = MakeRequest(context, report, known_revision, wait);
  v1::StoreSyncResponse response;
  CallOptions options;
  options.timeout = wait + absl::Seconds(10);
  options.group = group.get();
  const absl::Status status = UnaryCall(options, [&](auto* client_context, auto* reactor) {
    stub_->async()->StoreSync(client_context, &request, &response, reactor);
  });
  {
    MutexLock lock(&mu_);
    call_ = nullptr;
    interrupted_ = false;  // whatever is new goes with the next call
  }
  WEFT_RETURN_IF_ERROR(status);
  return AnswerFromProto(response);
}

void GrpcStoreSyncClient::Interrupt() {
  MutexLock lock(&mu_);
  interrupted_ = true;
  if (call_ != nullptr) call_->Cancel();
}

}  // namespace weft
