#include "services/lock_server/grpc_lock_client.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/logging.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/status_macros.h"
#include "services/lock_server/lock_client_convert.h"

namespace weft {
namespace {

// A session that cannot begin, because each new one has ended at once.
constexpr int kMaxRegistrations = 5;
// A run that waits for its edges: how long a call waits with it, and the pause before the next one,
// for a lock server that ends answers at once.
constexpr absl::Duration kRegisterWait = absl::Seconds(10);
constexpr absl::Duration kRegisterPause = absl::Milliseconds(200);
constexpr auto kTellInterval = std::chrono::minutes(1);

Incarnation NewIncarnation() {
  std::random_device device;
  Incarnation incarnation = 0;
  while (incarnation == 0) incarnation = (uint64_t{device()} << 32) | device();
  return incarnation;
}

GrpcLockClient::RunInfo RunInfoFromProto(const v1::RunInfo& proto) {
  GrpcLockClient::RunInfo run;
  run.config_json = proto.config_json();
  run.seed = proto.seed();
  for (const v1::EntityTypeCounts& type : proto.entity_types()) {
    run.entity_types.push_back(type.name());
    run.entity_counts.emplace_back(type.counts().begin(), type.counts().end());
  }
  run.num_dynamic_relations = proto.num_dynamic_relations();
  for (const v1::DataSet& set : proto.data_sets()) {
    run.data_sets.push_back({set.edge_path(), set.digest()});
  }
  run.edges_token = proto.edges_token();
  run.largest_bucket = proto.largest_bucket();
  run.largest_bucket_bytes = proto.largest_bucket_bytes();
  return run;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcLockClient>> GrpcLockClient::Create(Options options,
                                                                       PlaceDirectory* places) {
  WEFT_ASSIGN_OR_RETURN(const auto channel,
                        MakeChannel(options.address, Role::kLockServer, options.security));
  return std::unique_ptr<GrpcLockClient>(
      new GrpcLockClient(std::move(options), places, v1::LockService::NewStub(channel)));
}

GrpcLockClient::GrpcLockClient(Options options, PlaceDirectory* places,
                               std::unique_ptr<v1::LockService::Stub> stub)
    : options_(std::move(options)), places_(places), stub_(std::move(stub)) {}

GrpcLockClient::~GrpcLockClient() {
  Cancel();
  StopHeartbeats();
}

void GrpcLockClient::Cancel() {
  acquiring_.Cancel();
  calls_.Cancel();
}

absl::StatusOr<GrpcLockClient::SessionPtr> GrpcLockClient::Live() {
  MutexLock lock(&mu_);
  if (state_ == nullptr) return absl::AbortedError("there is no session");
  if (!state_->ended) return state_;
  MutexLock state_lock(&state_->mu);
  return state_->failure;
}

void GrpcLockClient::End(const SessionPtr& state, const absl::Status& why) {
  {
    MutexLock lock(&state->mu);
    if (state->failure.ok()) state->failure = why;
  }
  if (state->ended.exchange(true)) return;
  places_->Clear();
}

// An answer of an older life of the run is no answer.
absl::Status GrpcLockClient::TakeContext(const v1::RunContext& context) {
  const absl::Status status = fence_.Check(FromProto(context));
  return absl::IsAborted(status) ? absl::UnavailableError(status.message()) : status;
}

void GrpcLockClient::TellWaiting(absl::string_view why) {
  Tell(LogEvent("waiting for the lock server", {{"address", options_.address}, {"cause", why}}));
}

void GrpcLockClient::Tell(const LogEvent& waiting) {
  std::string text = ToText(waiting);
  const auto now = std::chrono::steady_clock::now();
  {
    MutexLock lock(&mu_);
    if (told_ == text && now - told_at_ < kTellInterval) return;
    told_ = std::move(text);
    told_at_ = now;
  }
  Log(waiting);
}

template <typename Request, typename Response>
absl::Status GrpcLockClient::Call(const SessionPtr& state, Request* request, Response* response,
                                  absl::Duration timeout, CallGroup* group, StartUnaryCall start) {
  *request->mutable_context() = ToProto(state->session.context);
  request->set_incarnation(state->session.incarnation);
  const Peer peer = {RoleName(ServerRole::kLock), options_.address};
  const CallOptions call = {timeout, group};
  const absl::Status status =
      RetryCall(peer, options_.retry, Idempotency::kIdempotent, group->flag(), [&] {
        response->Clear();
        const absl::Status called = UnaryCall(call, start);
        if (!state->begun && IsTransient(called)) TellWaiting(called.message());
        WEFT_RETURN_IF_ERROR(called);
        return TakeContext(response->context());
      });
  if (absl::IsAborted(status)) End(state, status);
  return status;
}

absl::StatusOr<GrpcLockClient::Session> GrpcLockClient::EnsureSession() {
  if (const absl::StatusOr<SessionPtr> live = Live(); live.ok()) return (*live)->session;
  StopHeartbeats();
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Register());
  StartHeartbeats(state);
  return state->session;
}

absl::StatusOr<GrpcLockClient::SessionPtr> GrpcLockClient::Register() {
  absl::Status status;
  for (int attempt = 0; attempt < kMaxRegistrations; ++attempt) {
    const auto state = std::make_shared<SessionState>();
    state->session.incarnation = NewIncarnation();
    // A lock server of another run is refused.
    state->session.context.run_id = fence_.known().run_id;
    absl::StatusOr<v1::RegisterResponse> response = SendRegister(state);
    status = response.status();
    if (absl::IsAborted(status)) continue;  // ended while its answer was on the way
    WEFT_RETURN_IF_ERROR(status);
    Session& session = state->session;
    session.context = FromProto(response->context());
    session.name = response->name();
    session.run = RunInfoFromProto(response->run());
    session.lease = absl::Milliseconds(response->lease_ms());
    state->begun = true;
    ++sessions_;
    WEFT_ASSIGN_OR_RETURN(ServerList servers, ServerListFromProto(response->servers()));
    places_->Clear();
    places_->SetServers(std::move(servers));
    MutexLock lock(&mu_);
    state_ = state;
    return state;
  }
  return status;
}

absl::StatusOr<v1::RegisterResponse> GrpcLockClient::SendRegister(const SessionPtr& state) {
  v1::RegisterRequest request;
  request.set_name(options_.name);
  request.set_protocol_version(kProtocolVersion);
  request.set_algorithm_version(kAlgorithmVersion);
  {
    MutexLock lock(&mu_);
    for (const RunInfo::DataSet& set : data_sets_) {
      v1::DataSet* const proto = request.add_data_sets();
      proto->set_edge_path(set.edge_path);
      proto->set_digest(set.digest);
    }
  }
  v1::RegisterResponse response;
  absl::Duration wait = absl::Milliseconds(1);  // at first: people are to hear at once why
  while (true) {
    request.set_wait_ms(absl::ToInt64Milliseconds(wait));
    WEFT_RETURN_IF_ERROR(Call(state, &request, &response, wait + options_.timeout, &calls_,
                              [&](auto* context, auto* reactor) {
                                stub_->async()->Register(context, &request, &response, reactor);
                              }));
    if (response.waits_for().empty()) return response;
    TellWaiting(response.waits_for());
    if (!calls_.flag()->WaitFor(kRegisterPause)) return absl::CancelledError("stopped");
    wait = kRegisterWait;
  }
}

absl::Status GrpcLockClient::CheckDataSets(std::vector<RunInfo::DataSet> data_sets) {
  {
    MutexLock lock(&mu_);
    data_sets_ = std::move(data_sets);
  }
  const absl::StatusOr<SessionPtr> live = Live();
  if (live.ok()) {
    // The same session again, which then knows what this trainer has.
    const absl::Status status = SendRegister(*live).status();
    if (!absl::IsAborted(status)) return status;
  }
  return EnsureSession().status();
}

absl::StatusOr<AcquireResult> GrpcLockClient::AcquireBucket(const AcquireRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
  if (!std::exchange(state->numbered, true)) state->number_offset = request.number - 1;
  v1::AcquireBucketRequest proto;
  proto.set_number(request.number - state->number_offset);
  for (const PartitionVersion& version : request.resident) {
    *proto.add_resident() = ToProto(version);
  }
  proto.set_wait_ms(absl::ToInt64Milliseconds(request.wait));
  v1::AcquireBucketResponse response;
  WEFT_RETURN_IF_ERROR(Call(state, &proto, &response, request.wait + options_.timeout, &acquiring_,
                            [&](auto* context, auto* reactor) {
                              stub_->async()->AcquireBucket(context, &proto, &response, reactor);
                            }));
  AddProgress(1);  // also when there is nothing to do: the trainer is well
  AcquireResult result;
  result.remaining = response.remaining();
  result.run_done = response.run_done();
  if (response.has_grant()) {
    WEFT_ASSIGN_OR_RETURN(result.grant, GrantFromProto(response.grant()));
    const Grant& grant = *result.grant;
    std::vector<PartitionVersion> bases;
    for (const GrantedPartition& p : grant.partitions) bases.push_back({p.key, p.base});
    bases.insert(bases.end(), grant.edges.begin(), grant.edges.end());
    places_->AddGrant(grant.token, grant.places, grant.store_at, grant.replicas, std::move(bases));
    MutexLock lock(&state->mu);
    state->tokens.insert(grant.token);
  }
  return result;
}

absl::StatusOr<ReleaseResult> GrpcLockClient::ReleaseBucket(const ReleaseRequest& request) {
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
  v1::ReleaseBucketRequest proto;
  proto.set_token(request.token);
  const std::vector<VersionInfo> stored =
      request.places.empty() ? places_->Stored(request.token) : request.places;
  for (const PartitionKey& key : request.stored) {
    const auto found = std::ranges::find_if(
        stored, [&](const VersionInfo& version) { return version.version.key == key; });
    if (found == stored.end()) {
      return absl::FailedPreconditionError(absl::StrCat("partition (", key.entity_type, ", ",
                                                        key.partition, ") of grant ", request.token,
                                                        " has not been stored"));
    }
    *proto.add_stored() = ToProto(*found);
  }
  for (const BucketStats& bucket : request.buckets) {
    *proto.add_buckets() = BucketReportToProto(bucket);
  }
  v1::ReleaseBucketResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(state, &proto, &response, options_.timeout, &calls_, [&](auto* context, auto* reactor) {
        stub_->async()->ReleaseBucket(context, &proto, &response, reactor);
      }));
  {
    MutexLock lock(&state->mu);
    state->tokens.erase(request.token);
  }
  places_->DropGrant(request.token);
  return ReleaseResult{response.pass_done()};
}

absl::Status GrpcLockClient::AbandonBucket(Token token) {
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
  {
    MutexLock lock(&state->mu);
    state->tokens.erase(token);
  }
  places_->DropGrant(token);
  v1::AbandonBucketRequest proto;
  proto.set_token(token);
  v1::AbandonBucketResponse response;
  return Call(state, &proto, &response, options_.timeout, &calls_,
              [&](auto* context, auto* reactor) {
                stub_->async()->AbandonBucket(context, &proto, &response, reactor);
              });
}

absl::Status GrpcLockClient::ReportFailure(Token token, const TrainingFailure& failure) {
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
  v1::ReportFailureRequest proto;
  proto.set_token(token);
  *proto.mutable_bucket() = ToProto(failure.bucket);
  proto.set_reason(failure.reason);
  v1::ReportFailureResponse response;
  return Call(state, &proto, &response, options_.timeout, &calls_,
              [&](auto* context, auto* reactor) {
                stub_->async()->ReportFailure(context, &proto, &response, reactor);
              });
}

absl::StatusOr<std::vector<Place>> GrpcLockClient::ReportUnreadable(Token token,
                                                                    const PartitionVersion& version,
                                                                    uint32_t shard,
                                                                    const Place& place) {
  WEFT_ASSIGN_OR_RETURN(const SessionPtr state, Live());
  v1::ReportUnreadableRequest proto;
  proto.set_token(token);
  *proto.mutable_version() = ToProto(version);
  proto.set_shard(shard);
  *proto.mutable_place() = ToProto(place);
  v1::ReportUnreadableResponse response;
  WEFT_RETURN_IF_ERROR(
      Call(state, &proto, &response, options_.timeout, &calls_, [&](auto* context, auto* reactor) {
        stub_->async()->ReportUnreadable(context, &proto, &response, reactor);
      }));
  std::vector<Place> places;
  for (const v1::Place& left : response.places()) places.push_back(FromProto(left));
  return places;
}

absl::Status GrpcLockClient::Leave() {
  const absl::StatusOr<SessionPtr> live = Live();
  if (!live.ok()) return absl::OkStatus();  // nothing to leave
  v1::LeaveRequest proto;
  v1::LeaveResponse response;
  const absl::Status status =
      Call(*live, &proto, &response, options_.timeout, &calls_, [&](auto* context, auto* reactor) {
        stub_->async()->Leave(context, &proto, &response, reactor);
      });
  End(*live, absl::AbortedError("this trainer has left"));
  return absl::IsAborted(status) ? absl::OkStatus() : status;
}

}  // namespace weft
