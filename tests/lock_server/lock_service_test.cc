// The lock server over gRPC, on loopback: what callers see of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_status.h"
#include "services/common/rpc/proto_convert.h"
#include "services/common/rpc/server_runner.h"
#include "services/lock_server/lock_service_convert.h"
#include "services/lock_server/lock_service_impl.h"
#include "services/lock_server/rocksdb_run_store.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_ca.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// A lock server with two partitions, on a RocksDB, and a client.
class LockServiceTest : public ::testing::Test {
 protected:
  LockServiceTest() { Start(); }
  ~LockServiceTest() override { Stop(); }

  void Start() {
    store_ = *RocksDbRunStore::Open(dir_.File("run"));
    RunPlan plan = testing::MakePlan(2);
    plan.commit_seconds = 0;
    plan.cluster.emplace();
    plan.cluster->incarnation = ++life_;
    if (awaits_edges_) plan.bucket_edges.clear();
    RunState state = (*store_->Load()).value_or(testing::MakeState(2));
    state.config_json = "{\"the\": \"configuration\"}";
    run_ = *RunCoordinator::Start(plan, state, store_.get());
    loop_ = std::make_unique<RunLoop>(run_.get(), store_.get(), Clock::Real(),
                                      [](const absl::Status&) { std::abort(); });
    service_ = std::make_unique<LockServiceImpl>(
        LockServiceImpl::Options{.on_superseded = [this] { superseded_ = true; }}, run_.get(),
        loop_.get(), Clock::Real());
    server_ = *ServerRunner::Start({.security = security_, .on_drain = [this] { loop_->Drain(); }},
                                   {service_.get()});
    ConnectWith({});
  }
  // From now on calls are made so.
  void ConnectWith(const SecurityOptions& security) {
    stub_ = v1::LockService::NewStub(
        *MakeChannel(server_->address(), Role::kLockServer, security, ++connections_));
  }
  void Stop() {
    stub_.reset();
    server_.reset();
    service_.reset();
    loop_.reset();
    run_.reset();
    store_.reset();
  }

  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(grpc::Status (v1::LockService::Stub::*method)(grpc::ClientContext*,
                                                                              const Request&,
                                                                              Response*),
                                const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Response response;
    const absl::Status status =
        FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  absl::StatusOr<v1::RegisterResponse> Register(uint64_t incarnation, int64_t wait_ms = 0) {
    v1::RegisterRequest request;
    request.set_wait_ms(wait_ms);
    request.set_incarnation(incarnation);
    request.set_name("t");
    request.set_protocol_version(kProtocolVersion);
    request.set_algorithm_version(kAlgorithmVersion);
    auto response = Call(&v1::LockService::Stub::Register, request);
    if (response.ok()) context_ = response->context();
    return response;
  }
  absl::StatusOr<v1::StoreSyncResponse> SyncStore(uint64_t known = 0, int64_t wait_ms = 0,
                                                  v1::ServerRole role = v1::SERVER_ROLE_PARTITION) {
    v1::StoreSyncRequest request;
    request.mutable_server()->set_role(role);
    request.mutable_server()->set_store_id(11);
    request.mutable_server()->set_incarnation(1);
    request.mutable_server()->set_address("localhost:1");
    request.mutable_server()->set_durable(true);
    request.set_known_revision(known);
    request.set_wait_ms(wait_ms);
    return Call(&v1::LockService::Stub::StoreSync, request);
  }
  absl::StatusOr<v1::AcquireBucketResponse> Acquire(uint64_t incarnation, uint64_t number,
                                                    int64_t wait_ms = 0) {
    v1::AcquireBucketRequest request;
    *request.mutable_context() = context_;
    request.set_incarnation(incarnation);
    request.set_number(number);
    request.set_wait_ms(wait_ms);
    return Call(&v1::LockService::Stub::AcquireBucket, request);
  }
  absl::StatusOr<v1::ReleaseBucketResponse> Release(uint64_t incarnation, const v1::Grant& grant) {
    v1::ReleaseBucketRequest request;
    *request.mutable_context() = context_;
    request.set_incarnation(incarnation);
    request.set_token(grant.token());
    for (const v1::GrantedPartition& partition : grant.partitions()) {
      v1::VersionInfo* stored = request.add_stored();
      *stored->mutable_version() = partition.base().version();
      stored->mutable_version()->set_token(grant.token());
      v1::ShardInfo* shard = stored->add_shards();
      shard->set_num_rows(10);
      shard->set_size_bytes(100);
      shard->set_xxh3(5);
      shard->add_places()->set_store_id(11);
    }
    for (const v1::GrantedBucket& bucket : grant.buckets()) {
      v1::BucketReport* report = request.add_buckets();
      *report->mutable_bucket() = bucket.bucket();
      report->set_trained_edges(bucket.expected_edges());
    }
    return Call(&v1::LockService::Stub::ReleaseBucket, request);
  }

  const testing::TempDir dir_;
  uint64_t life_ = 100;
  bool awaits_edges_ = false;  // of lives to come
  SecurityOptions security_;   // of lives to come
  int connections_ = 0;
  std::atomic<bool> superseded_ = false;
  std::unique_ptr<RocksDbRunStore> store_;
  std::unique_ptr<RunCoordinator> run_;
  std::unique_ptr<RunLoop> loop_;
  std::unique_ptr<LockServiceImpl> service_;
  std::unique_ptr<ServerRunner> server_;
  std::unique_ptr<v1::LockService::Stub> stub_;
  v1::RunContext context_;
};

// What a trainer's memory check goes by, where edges have features or weights.
TEST(RunInfoTest, TellsTheBytesOfTheLargestBucketThatServersHold) {
  RunState state = testing::MakeState(2);
  EXPECT_EQ(MakeRunInfo(state).largest_bucket_bytes(), 0);
  const auto shard = [](int64_t bytes) {
    ShardInfo made;
    made.size_bytes = bytes;
    return made;
  };
  state.places.Set(EdgesVersion(7, 0, {0, 1}, 2, 2), {shard(1000), shard(20)});
  state.places.Set(EdgesVersion(7, 0, {1, 1}, 2, 2), {shard(1010)});
  state.places.Set({{0, 1}, 7}, {shard(5000)});  // a partition
  EXPECT_EQ(MakeRunInfo(state).largest_bucket_bytes(), 1020);
}

TEST_F(LockServiceTest, ATrainerGetsTheConfigurationAndTheServers) {
  ASSERT_THAT(SyncStore(), IsOk());

  const auto response = Register(1001);

  ASSERT_THAT(response, IsOk());
  EXPECT_EQ(response->context().run_id(), "r");
  EXPECT_EQ(response->context().term(), 1u);
  EXPECT_EQ(response->run().config_json(), "{\"the\": \"configuration\"}");
  ASSERT_EQ(response->servers().partition_servers_size(), 1);
  EXPECT_EQ(response->servers().partition_servers(0).address(), "localhost:1");
  EXPECT_EQ(response->lease_ms(), 30000);
}

TEST_F(LockServiceTest, ATrainerIsToldWhatTheRunWaitsFor) {
  Stop();
  awaits_edges_ = true;
  Start();

  const auto told = Register(1, /*wait_ms=*/1);

  ASSERT_THAT(told, IsOk());
  EXPECT_THAT(told->waits_for(), HasSubstr("waits for the edges of"));
  EXPECT_EQ(told->lease_ms(), 0);
  EXPECT_TRUE(run_->state().sessions.empty());
  EXPECT_THAT(Register(1), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("waits for")));
}

TEST_F(LockServiceTest, APassIsTrainedOverTheWire) {
  ASSERT_THAT(SyncStore(), IsOk());
  ASSERT_THAT(Register(1001), IsOk());
  int64_t edges = 0;
  for (uint64_t number = 1; number <= 4; ++number) {
    const auto acquired = Acquire(1001, number);
    ASSERT_THAT(acquired, IsOk());
    ASSERT_TRUE(acquired->has_grant());
    edges += acquired->grant().buckets(0).expected_edges();
    for (const v1::GrantedPartition& partition : acquired->grant().partitions()) {
      if (partition.source() != v1::GrantedPartition::SOURCE_READ) continue;
      ASSERT_EQ(partition.base().shards_size(), 1);
      EXPECT_EQ(partition.base().shards(0).xxh3(), 5u);
      EXPECT_EQ(partition.base().shards(0).places(0).store_id(), 11u);
    }
    const auto released = Release(1001, acquired->grant());
    ASSERT_THAT(released, IsOk());
    EXPECT_EQ(released->pass_done(), number == 4);
  }
  EXPECT_EQ(edges, 40);

  v1::GetCheckpointRequest request;
  const auto checkpoint = Call(&v1::LockService::Stub::GetCheckpoint, request);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->manifest().version(), 1);
  EXPECT_EQ(checkpoint->partitions_size(), 2);
}

TEST_F(LockServiceTest, ForeignReplayedAndInventedReleasesChangeNothing) {
  ASSERT_THAT(SyncStore(), IsOk());
  ASSERT_THAT(Register(1001), IsOk());
  ASSERT_THAT(Register(1002), IsOk());
  const auto done = [&] {
    const auto state = Call(&v1::LockService::Stub::GetRunState, v1::GetRunStateRequest());
    EXPECT_THAT(state, IsOk());
    return state->buckets_done();
  };
  const v1::Grant grant = Acquire(1001, 1)->grant();
  v1::Grant invented = grant;
  invented.set_token(UINT64_MAX);

  EXPECT_THAT(Release(1002, grant), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(Release(1001, invented), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(done(), 0);
  ASSERT_THAT(Release(1001, grant), IsOk());
  EXPECT_THAT(Release(1001, grant), IsOk()) << "the same answer";
  EXPECT_THAT(Release(1002, grant), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(done(), 1);
  EXPECT_TRUE(Acquire(1001, 2)->has_grant()) << "it still grants";
}

TEST_F(LockServiceTest, ALockServerThatIsKilledGoesOnWhereItWas) {
  ASSERT_THAT(SyncStore(), IsOk());
  ASSERT_THAT(Register(1001), IsOk());
  const auto acquired = Acquire(1001, 1);
  ASSERT_TRUE(acquired->has_grant());

  Stop();
  Start();

  const auto again = Acquire(1001, 1);
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->grant().token(), acquired->grant().token());
  EXPECT_EQ(again->context().term(), 2u);
  EXPECT_THAT(Release(1001, acquired->grant()), IsOk());
}

TEST_F(LockServiceTest, AnAcquireWaitsForARelease) {
  ASSERT_THAT(SyncStore(), IsOk());
  ASSERT_THAT(Register(1001), IsOk());
  ASSERT_THAT(Register(1002), IsOk());
  const auto first = Acquire(1001, 1);
  ASSERT_TRUE(first->has_grant());

  absl::StatusOr<v1::AcquireBucketResponse> waited;
  std::thread other([&] { waited = Acquire(1002, 1, 9000); });
  // The rest of the pass: whatever the other thread is given, it does not overlap with ours.
  ASSERT_THAT(Release(1001, first->grant()), IsOk());
  other.join();

  ASSERT_THAT(waited, IsOk());
  EXPECT_TRUE(waited->has_grant());
}

TEST_F(LockServiceTest, AServerThatKnowsEverythingWaits) {
  const auto first = SyncStore();
  ASSERT_THAT(first, IsOk());
  EXPECT_TRUE(first->has_run());
  absl::StatusOr<v1::StoreSyncResponse> waited;
  std::thread server([&] { waited = SyncStore(first->revision(), 9000); });
  ASSERT_THAT(Register(1001), IsOk());
  v1::LeaveRequest leave;
  *leave.mutable_context() = context_;
  leave.set_incarnation(1001);
  ASSERT_THAT(Call(&v1::LockService::Stub::Leave, leave), IsOk());
  server.join();

  ASSERT_THAT(waited, IsOk());
  EXPECT_GT(waited->revision(), first->revision());
}

TEST_F(LockServiceTest, CallsOfAnotherRunAreRefusedWithBothIds) {
  ASSERT_THAT(Register(1001), IsOk());
  context_.set_run_id("another");

  EXPECT_THAT(Acquire(1001, 1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         AllOf(HasSubstr("run r"), HasSubstr("run another"))));
  EXPECT_FALSE(superseded_);
}

TEST_F(LockServiceTest, AnUnknownSessionIsAborted) {
  ASSERT_THAT(SyncStore(), IsOk());

  EXPECT_THAT(Acquire(77, 1), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(LockServiceTest, MeetingALaterTermIsReported) {
  ASSERT_THAT(Register(1001), IsOk());
  context_.set_term(99);

  EXPECT_THAT(Acquire(1001, 1), StatusIs(absl::StatusCode::kFailedPrecondition));

  while (!superseded_) std::this_thread::yield();
}

TEST_F(LockServiceTest, TheRunStateShowsEveryBucket) {
  ASSERT_THAT(SyncStore(), IsOk());
  ASSERT_THAT(Register(1001), IsOk());
  ASSERT_TRUE(Acquire(1001, 1)->has_grant());
  v1::GetRunStateRequest request;
  request.set_include_buckets(true);

  const auto state = Call(&v1::LockService::Stub::GetRunState, request);

  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(state->phase(), v1::RUN_PHASE_RUNNING);
  ASSERT_EQ(state->bucket_states().size(), 4u);
  int granted = 0;
  for (const char bucket : state->bucket_states()) granted += bucket == v1::BUCKET_STATE_GRANTED;
  EXPECT_EQ(granted, 1);
  ASSERT_EQ(state->trainers_size(), 1);
  EXPECT_EQ(state->trainers(0).buckets_size(), 1);
}

TEST_F(LockServiceTest, MessagesThatMakeNoSenseAreRefused) {
  v1::StoreSyncRequest request;
  EXPECT_THAT(Call(&v1::LockService::Stub::StoreSync, request),
              StatusIs(absl::StatusCode::kInvalidArgument));
  v1::RegisterRequest trainer;
  EXPECT_THAT(Call(&v1::LockService::Stub::Register, trainer),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(LockServiceTest, OverTlsAStoreRegistersAsWhatItsCertificateSaysOnly) {
  const testing::TestCa ca(dir_.File("ca"));
  const auto of = [&](const std::string& role) {
    return SecurityOptions{.tls = *TlsIdentity::Load(ca.Files(role), {})};
  };
  Stop();
  security_ = of("lock-server");
  Start();

  ConnectWith(of("param-server"));
  EXPECT_THAT(SyncStore(), StatusIs(absl::StatusCode::kPermissionDenied,
                                    AllOf(HasSubstr("a certificate of param-server may not"),
                                          HasSubstr("register a partition-server"))));
  EXPECT_TRUE(run_->servers().partition_servers.empty());
  ConnectWith(of("partition-server"));
  EXPECT_THAT(SyncStore(0, 0, v1::SERVER_ROLE_PARAM),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("register a param-server")));

  EXPECT_THAT(SyncStore(), IsOk());
  ConnectWith(of("cluster"));  // of all roles
  EXPECT_THAT(SyncStore(), IsOk());
}

}  // namespace
}  // namespace weft
