#include "services/lock_server/grpc_lock_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/common/rpc/server_runner.h"
#include "tests/lock_server/fake_lock_service.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weft::testing::FakeLockService;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

v1::RunContext Context(const std::string& run_id, uint64_t term, uint64_t generation) {
  v1::RunContext context;
  context.set_run_id(run_id);
  context.set_term(term);
  context.set_lock_server(term + 1000);
  context.set_generation(generation);
  return context;
}

void MakeGrant(uint64_t token, v1::AcquireBucketResponse* response) {
  v1::Grant* const grant = response->mutable_grant();
  grant->set_token(token);
  grant->mutable_position()->set_pass_id(4);
  v1::GrantedBucket* const bucket = grant->add_buckets();
  bucket->mutable_bucket()->set_rhs(1);
  bucket->set_expected_edges(77);
  v1::GrantedPartition* const partition = grant->add_partitions();
  partition->mutable_base()->mutable_version()->mutable_key()->set_partition(1);
  partition->mutable_base()->mutable_version()->set_token(9);
  partition->mutable_base()->add_shards()->add_places()->set_store_id(5);
  partition->set_source(v1::GrantedPartition::SOURCE_READ);
  grant->add_store_at(5);
  grant->set_replicas(1);
  response->set_remaining(3);
}

class GrpcLockClientTest : public ::testing::Test {
 protected:
  GrpcLockClientTest() { service_.context = Context("run-a", 3, 1); }

  void Start(std::string listen = "127.0.0.1:0") {
    ServerRunner::Options options;
    options.listen = std::move(listen);
    options.grace = absl::Milliseconds(100);
    auto started = ServerRunner::Start(options, {&service_});
    ASSERT_THAT(started, IsOk());
    server_ = *std::move(started);
    address_ = server_->address();
  }

  GrpcLockClient& Client() {
    if (client_ == nullptr) {
      GrpcLockClient::Options options;
      options.address = address_;
      options.name = "trainer-1";
      options.retry.patience = patience_;
      auto client = GrpcLockClient::Create(options, &places_);
      EXPECT_THAT(client, IsOk());
      client_ = *std::move(client);
    }
    return *client_;
  }

  FakeLockService service_;
  std::unique_ptr<ServerRunner> server_;
  std::string address_;
  absl::Duration patience_ = absl::Seconds(30);
  PlaceDirectory places_;
  std::unique_ptr<GrpcLockClient> client_;
};

TEST_F(GrpcLockClientTest, RegistersWithItsVersionsAndKeepsTheSession) {
  service_.on_register = [](const v1::RegisterRequest& request, v1::RegisterResponse* response) {
    response->set_name(request.name() + "-2");
    response->set_lease_ms(30'000);
    response->mutable_run()->set_config_json("{}");
    response->mutable_run()->set_seed(42);
    v1::EntityTypeCounts* const type = response->mutable_run()->add_entity_types();
    type->set_name("user");
    type->add_counts(10);
    type->add_counts(11);
    v1::ServerInfo* const server = response->mutable_servers()->add_partition_servers();
    server->set_role(v1::SERVER_ROLE_PARTITION);
    server->set_store_id(5);
    server->set_incarnation(6);
    server->set_address("127.0.0.1:7");
    return absl::OkStatus();
  };
  Start();

  const auto session = Client().EnsureSession();

  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(session->name, "trainer-1-2");
  EXPECT_EQ(session->context.run_id, "run-a");
  EXPECT_EQ(session->context.generation, 1u);
  EXPECT_EQ(session->run.seed, 42u);
  EXPECT_THAT(session->run.entity_counts, ElementsAre(ElementsAre(10, 11)));
  EXPECT_EQ(session->lease, absl::Seconds(30));
  EXPECT_EQ(places_.Server(5)->address, "127.0.0.1:7");
  EXPECT_EQ(Client().EnsureSession()->incarnation, session->incarnation);
  const auto requests = service_.Requests<v1::RegisterRequest>("Register");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].protocol_version(), kProtocolVersion);
  EXPECT_EQ(requests[0].algorithm_version(), kAlgorithmVersion);
}

TEST_F(GrpcLockClientTest, GrantsAreUnderstoodAndTheirPlacesRemembered) {
  service_.on_acquire = [](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    MakeGrant(20, response);
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  const auto result = Client().AcquireBucket({1, {{{0, 1}, 9}}, absl::Seconds(1)});

  ASSERT_THAT(result, IsOk());
  ASSERT_TRUE(result->grant.has_value());
  EXPECT_EQ(result->grant->token, 20u);
  EXPECT_EQ(result->grant->position.pass, 4);
  EXPECT_EQ(result->grant->buckets[0].bucket, (Bucket{0, 1}));
  EXPECT_EQ(result->grant->buckets[0].expected_edges, 77);
  EXPECT_EQ(result->grant->partitions[0].source, GrantedPartition::Source::kRead);
  EXPECT_EQ(result->remaining, 3);
  EXPECT_THAT(places_.Find({{0, 1}, 9})->shards[0].places, ElementsAre(Place{5, 0}));
  const auto requests = service_.Requests<v1::AcquireBucketRequest>("AcquireBucket");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].number(), 1u);
  EXPECT_EQ(requests[0].wait_ms(), 1000);
  EXPECT_EQ(requests[0].resident(0).token(), 9u);
  EXPECT_EQ(requests[0].context().term(), 3u);
}

TEST_F(GrpcLockClientTest, ReleasesSayWhereVersionsWereStored) {
  service_.on_acquire = [](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    MakeGrant(20, response);
    return absl::OkStatus();
  };
  service_.on_release = [](const v1::ReleaseBucketRequest&, v1::ReleaseBucketResponse* response) {
    response->set_pass_done(true);
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());
  ASSERT_THAT(Client().AcquireBucket({1, {}, absl::Seconds(1)}), IsOk());
  ReleaseRequest release;
  release.token = 20;
  release.stored = {{0, 1}};
  release.buckets.emplace_back().trained_edges = 70;
  release.buckets[0].held_out_edges = 7;

  // Nothing is stored yet: the pipeline has to store first.
  EXPECT_THAT(Client().ReleaseBucket(release), StatusIs(absl::StatusCode::kFailedPrecondition));

  ShardInfo shard;
  shard.num_rows = 10;
  shard.places = {{5, 6}};
  places_.SetStored({{{0, 1}, 20}, {shard}});
  const auto result = Client().ReleaseBucket(release);

  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->pass_done);
  const auto requests = service_.Requests<v1::ReleaseBucketRequest>("ReleaseBucket");
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].stored(0).shards(0).places(0).incarnation(), 6u);
  EXPECT_EQ(requests[0].buckets(0).trained_edges(), 70);
  EXPECT_EQ(requests[0].buckets(0).held_out_edges(), 7);
}

TEST_F(GrpcLockClientTest, UnavailableIsRepeatedWithTheSameBytes) {
  std::atomic<int> attempts = 0;
  service_.on_acquire = [&](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    if (++attempts <= 3) return absl::UnavailableError("restarting");
    MakeGrant(20, response);
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  ASSERT_THAT(Client().AcquireBucket({1, {{{0, 1}, 9}}, absl::Seconds(1)}), IsOk());

  std::vector<std::string> bytes;
  for (const FakeLockService::Call& call : service_.calls()) {
    if (call.method == "AcquireBucket") bytes.push_back(call.bytes);
  }
  ASSERT_EQ(bytes.size(), 4u);
  for (const std::string& attempt : bytes) EXPECT_EQ(attempt, bytes[0]);
}

TEST_F(GrpcLockClientTest, ALockServerThatComesLaterIsJoined) {
  Start();
  server_ = nullptr;  // its port is free now
  absl::StatusOr<GrpcLockClient::Session> session = absl::UnknownError("");
  GrpcLockClient& client = Client();
  std::thread trainer([&] { session = client.EnsureSession(); });

  Start(address_);
  trainer.join();

  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(session->context.run_id, "run-a");
}

TEST_F(GrpcLockClientTest, AWrongAddressIsAnErrorWithRoleAddressAndCause) {
  Start();
  server_ = nullptr;
  patience_ = absl::Milliseconds(300);

  EXPECT_THAT(Client().EnsureSession(), StatusIs(absl::StatusCode::kUnavailable,
                                                 AllOf(HasSubstr("lock server at " + address_),
                                                       HasSubstr("gave up"), HasSubstr("onnect"))));
}

TEST_F(GrpcLockClientTest, ARunThatWaitsIsWaitedForBeyondPatience) {
  std::atomic<int> asked = 0;
  service_.on_register = [&](const v1::RegisterRequest& request, v1::RegisterResponse* response) {
    EXPECT_GT(request.wait_ms(), 0);
    if (++asked <= 4) {
      response->set_waits_for("the run waits for the edges of cluster://train");
    } else {
      response->set_lease_ms(60'000);
    }
    return absl::OkStatus();
  };
  Start();
  // Over before the second call.
  patience_ = absl::Milliseconds(50);

  const auto session = Client().EnsureSession();

  ASSERT_THAT(session, IsOk());
  EXPECT_EQ(session->lease, absl::Minutes(1));
  EXPECT_EQ(asked, 5);
}

TEST_F(GrpcLockClientTest, ARunThatWaitsIsLeftWhenTheTrainerEnds) {
  service_.on_register = [](const v1::RegisterRequest&, v1::RegisterResponse* response) {
    response->set_waits_for("the run waits for the edges of cluster://train");
    return absl::OkStatus();
  };
  Start();
  GrpcLockClient& client = Client();
  absl::Status status;
  std::thread trainer([&] { status = client.EnsureSession().status(); });
  service_.AwaitCalls("Register", 2);

  client.Cancel();
  trainer.join();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(GrpcLockClientTest, AbortedIsPassedUpAndANewSessionBegins) {
  std::atomic<bool> abort = true;
  service_.on_acquire = [&](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    if (abort) return absl::AbortedError("the session has ended");
    MakeGrant(20, response);
    return absl::OkStatus();
  };
  Start();
  const auto first = Client().EnsureSession();
  ASSERT_THAT(first, IsOk());

  EXPECT_THAT(Client().AcquireBucket({5, {}, absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kAborted));
  // Until somebody registers anew every call says the same, without asking.
  EXPECT_THAT(Client().ReleaseBucket({}), StatusIs(absl::StatusCode::kAborted));
  abort = false;
  const auto second = Client().EnsureSession();

  ASSERT_THAT(second, IsOk());
  EXPECT_NE(second->incarnation, first->incarnation);
  ASSERT_THAT(Client().AcquireBucket({5, {}, absl::Seconds(1)}), IsOk());
  ASSERT_THAT(Client().AcquireBucket({6, {}, absl::Seconds(1)}), IsOk());
  // The numbers of a session begin with 1.
  const auto requests = service_.Requests<v1::AcquireBucketRequest>("AcquireBucket");
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].number(), 1u);
  EXPECT_EQ(requests[2].number(), 2u);
  EXPECT_TRUE(service_.Requests<v1::ReleaseBucketRequest>("ReleaseBucket").empty());
}

TEST_F(GrpcLockClientTest, AnotherRunBehindTheAddressIsRefused) {
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());
  service_.context = Context("run-b", 1, 1);

  EXPECT_THAT(Client().AcquireBucket({1, {}, absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("run-a"), HasSubstr("run-b"), HasSubstr(address_))));
}

TEST_F(GrpcLockClientTest, AnswersOfAnEarlierLifeAreNone) {
  std::atomic<int> attempts = 0;
  service_.on_acquire = [&](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    *response->mutable_context() = Context("run-a", ++attempts == 1 ? 2 : 3, 1);
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  ASSERT_THAT(Client().AcquireBucket({1, {}, absl::Seconds(1)}), IsOk());

  EXPECT_EQ(attempts, 2);
}

TEST_F(GrpcLockClientTest, HeartbeatsListTheGrantsAndShowProgress) {
  service_.on_register = [](const v1::RegisterRequest&, v1::RegisterResponse* response) {
    response->set_lease_ms(40);
    return absl::OkStatus();
  };
  service_.on_acquire = [](const v1::AcquireBucketRequest&, v1::AcquireBucketResponse* response) {
    MakeGrant(20, response);
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());
  ASSERT_THAT(Client().AcquireBucket({1, {}, absl::Seconds(1)}), IsOk());
  Client().AddProgress(17);  // and one for each answer to AcquireBucket
  const int before = static_cast<int>(service_.Requests<v1::HeartbeatRequest>("Heartbeat").size());

  service_.AwaitCalls("Heartbeat", before + 2);

  const v1::HeartbeatRequest last = service_.Requests<v1::HeartbeatRequest>("Heartbeat").back();
  EXPECT_THAT(last.tokens(), ElementsAre(20));
  EXPECT_EQ(last.progress(), 18u);
}

TEST_F(GrpcLockClientTest, AHeartbeatThatIsRefusedEndsTheSession) {
  service_.on_register = [](const v1::RegisterRequest&, v1::RegisterResponse* response) {
    response->set_lease_ms(40);
    return absl::OkStatus();
  };
  std::atomic<bool> refuse = false;
  service_.on_heartbeat = [&](const v1::HeartbeatRequest&, v1::HeartbeatResponse*) {
    return refuse ? absl::AbortedError("no progress for 10 min") : absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  refuse = true;

  // The next heartbeat tells the client.
  absl::Status status;
  do {
    status = Client().AcquireBucket({1, {}, absl::Seconds(1)}).status();
  } while (status.ok());
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("no progress")));
}

TEST_F(GrpcLockClientTest, WaitsUntilTheRunIsPrepared) {
  std::atomic<int> beats = 0;
  service_.on_heartbeat = [&](const v1::HeartbeatRequest&, v1::HeartbeatResponse* response) {
    response->set_phase(++beats < 3 ? v1::RUN_PHASE_PREPARING : v1::RUN_PHASE_RUNNING);
    if (beats == 3) {
      v1::ServerInfo* const server = response->mutable_servers()->add_param_servers();
      server->set_role(v1::SERVER_ROLE_PARAM);
      server->set_store_id(5);
      server->set_incarnation(6);
      response->mutable_servers()->set_revision(2);
    }
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  ASSERT_THAT(Client().AwaitPrepared(), IsOk());

  EXPECT_EQ(beats, 3);
  EXPECT_EQ(places_.servers().param_servers.size(), 1u);
  Client().StopAcquiring();
  beats = 0;
  EXPECT_THAT(Client().AwaitPrepared(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(GrpcLockClientTest, AnAcquireThatWaitsCanBeStopped) {
  service_.acquire_hangs = true;
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());
  absl::Status status;
  std::thread trainer([&] {
    status = Client().AcquireBucket({1, {}, absl::Minutes(10)}).status();
  });
  service_.AwaitCalls("AcquireBucket", 1);

  Client().StopAcquiring();
  trainer.join();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(Client().Leave(), IsOk());
}

TEST_F(GrpcLockClientTest, LeaveEndsTheSessionOnceAndHarmlessly) {
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  EXPECT_THAT(Client().Leave(), IsOk());
  EXPECT_THAT(Client().Leave(), IsOk());

  EXPECT_EQ(service_.Requests<v1::LeaveRequest>("Leave").size(), 1u);
  EXPECT_THAT(Client().AcquireBucket({1, {}, absl::Seconds(1)}),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(GrpcLockClientTest, DataSetsAreComparedInTheSameSession) {
  service_.on_register = [](const v1::RegisterRequest& request, v1::RegisterResponse* response) {
    response->set_lease_ms(60'000);
    for (const v1::DataSet& set : request.data_sets()) {
      if (set.digest() != 99) return absl::FailedPreconditionError("edges of another import");
    }
    return absl::OkStatus();
  };
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  EXPECT_THAT(Client().CheckDataSets({{"train", 98}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another import")));
  EXPECT_THAT(Client().CheckDataSets({{"train", 99}}), IsOk());

  const auto requests = service_.Requests<v1::RegisterRequest>("Register");
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[2].incarnation(), requests[0].incarnation());
}

TEST_F(GrpcLockClientTest, UnreadablePlacesAreReported) {
  Start();
  ASSERT_THAT(Client().EnsureSession(), IsOk());

  const auto places = Client().ReportUnreadable(20, {{0, 1}, 9}, 2, {5, 6});

  ASSERT_THAT(places, IsOk());
  EXPECT_THAT(*places, ElementsAre(Place{6, 0}));
}

}  // namespace
}  // namespace weft
