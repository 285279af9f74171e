// Parameter servers and trainers over gRPC, on this machine.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/common/retry.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/server_runner.h"
#include "services/param_server/cluster_param_client.h"
#include "services/param_server/grpc_param_client.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/param_convert.h"
#include "services/param_server/param_service_impl.h"
#include "services/param_server/row_block_store.h"
#include "tests/param_server/failing_push_log.h"
#include "tests/param_server/store_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::FailingPushLog;
using testing::IsOk;
using testing::StatusIs;
using testing::StoreFixture;
using testing::TestLayout;

// A server with its socket; it can be stopped and started again on the same log.
class TestServer {
 public:
  TestServer(int index, int num_servers, const SharedLayout& layout)
      : share_{"run", 1, layout, index, num_servers} {
    Start();
    EXPECT_THAT(store->Install(share_, 0,
                               [](RowTable* table) -> absl::StatusOr<int64_t> {
                                 for (int64_t i = 0; i < table->num_rows(); ++i) {
                                   for (float& f : table->values(i)) f = 1;
                                 }
                                 return 0;
                               }),
                IsOk());
  }
  ~TestServer() { Stop(); }

  void Start() {
    store =
        *RowBlockStore::Open({++incarnations_ + 1000 * static_cast<uint64_t>(share_.server)}, &log);
    service_ = std::make_unique<ParamServiceImpl>(store.get(), &pool_, nullptr,
                                                  [this] { failed.Cancel(); });
    ServerRunner::Options options;
    if (!address.empty()) options.listen = address;
    auto runner = ServerRunner::Start(options, {service_.get()});
    ASSERT_THAT(runner, IsOk());
    runner_ = *std::move(runner);
    address = runner_->address();
  }
  void Stop() {
    runner_.reset();
    service_.reset();
  }

  MemoryPushLog memory;
  FailingPushLog log{&memory};
  CancelFlag failed;  // it has said that it can write no more
  std::unique_ptr<RowBlockStore> store;
  std::string address;

 private:
  const RowBlockStore::Share share_;
  uint64_t incarnations_ = 0;
  WorkPool pool_{2};
  std::unique_ptr<ParamServiceImpl> service_;
  std::unique_ptr<ServerRunner> runner_;
};

std::shared_ptr<ParamServerClient> Connect(const std::string& address,
                                           GrpcParamClient::Options options = {}) {
  return std::make_shared<GrpcParamClient>(address, *MakeChannel(address, Role::kParamServer, {}),
                                           options);
}

// Twelve relations and an unpartitioned type.
SharedState MakeState() {
  SharedState state;
  for (int r = 0; r < 12; ++r) {
    state.parameters.Add("relations/" + std::to_string(r) + "/operator/rhs/translation", {8}, 1, 8);
  }
  state.unpartitioned.emplace_back(3000, 8);
  return state;
}

class ParamServiceTest : public ::testing::Test {
 protected:
  void Start(int num_servers) {
    const SharedLayout layout = SharedLayout::Of(MakeState());
    for (int i = 0; i < num_servers; ++i) {
      servers_.push_back(std::make_unique<TestServer>(i, num_servers, layout));
    }
  }
  struct Trainer {
    SharedState state = MakeState();
    std::unique_ptr<ClusterParamClient> client;
  };
  std::unique_ptr<Trainer> AddTrainer(absl::Duration interval = absl::Milliseconds(5)) {
    auto trainer = std::make_unique<Trainer>();
    ClusterParamClient::Options options;
    options.interval = interval;
    trainer->client = std::make_unique<ClusterParamClient>(
        options,
        [this, incarnation = ++incarnations_]() -> absl::StatusOr<ClusterParamClient::Session> {
          ClusterParamClient::Session session{{{"run", 1, 0, 1}, incarnation}, {}};
          for (auto& server : servers_) session.servers.push_back(Connect(server->address));
          return session;
        },
        Clock::Real());
    EXPECT_THAT(trainer->client->Join(&trainer->state), IsOk());
    return trainer;
  }
  static void Add(SharedState* state, int64_t row, float value) {
    for (float& f : state->unpartitioned[0].embeddings.row(row)) {
      std::atomic_ref(f).fetch_add(value, std::memory_order_relaxed);
    }
    MarkChanged(state->unpartitioned_changed[0].data(), row);
    Parameter& p = state->parameters.all()[static_cast<size_t>(row) % 12];
    for (float& f : p.values.span()) {
      std::atomic_ref(f).fetch_add(value, std::memory_order_relaxed);
    }
    MarkChanged(p.changed.data(), 0);
  }
  static void ExpectEqual(const SharedState& a, const SharedState& b) {
    for (size_t i = 0; i < a.parameters.all().size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(a.parameters.all()[i].values.span(),
                                     b.parameters.all()[i].values.span()))
          << a.parameters.all()[i].name;
    }
    EXPECT_TRUE(std::ranges::equal(a.unpartitioned[0].embeddings.span(),
                                   b.unpartitioned[0].embeddings.span()));
  }

  std::vector<std::unique_ptr<TestServer>> servers_;
  uint64_t incarnations_ = 0;
};

// PyTorch-BigGraph's trainers could ask different servers for one key, and then never agreed.
TEST_F(ParamServiceTest, ATrainerThatLearnsNothingEndsWithWhatTheOtherHasLearned) {
  Start(3);
  auto idle = AddTrainer();  // lr = 0
  auto learns = AddTrainer();
  for (int64_t row = 0; row < 3000; ++row) Add(&learns->state, row, 2);
  ASSERT_THAT(learns->client->Flush(), IsOk());
  ASSERT_THAT(idle->client->Flush(), IsOk());

  ExpectEqual(idle->state, learns->state);
  EXPECT_EQ(idle->state.unpartitioned[0].embeddings.row(2999)[7], 3);
  EXPECT_EQ(idle->state.parameters.all()[0].values.data()[0], 1 + 2 * 250);
  for (const auto& server : servers_) EXPECT_GT(server->store->stats().rows_received, 0);
}

TEST_F(ParamServiceTest, TrainersGoOnAfterAServerHasRestarted) {
  Start(2);
  auto a = AddTrainer();
  auto b = AddTrainer();
  auto train = [](Trainer* t) {
    for (int i = 0; i < 20; ++i) {
      for (int64_t row = 0; row < 3000; row += 37) Add(&t->state, row, 1);
      EXPECT_THAT(t->client->Flush(), IsOk());
    }
  };
  std::thread one(train, a.get());
  std::thread other(train, b.get());
  for (auto& server : servers_) {
    server->Stop();
    server->Start();
  }
  one.join();
  other.join();
  for (Trainer* t : {a.get(), b.get(), a.get()}) EXPECT_THAT(t->client->Flush(), IsOk());

  ExpectEqual(a->state, b->state);
}

TEST_F(ParamServiceTest, TrainersOutliveAServerThatCanWriteNoMoreAndEnds) {
  Start(1);
  TestServer& server = *servers_[0];
  auto trainer = AddTrainer();
  server.log.fail_write = true;
  Add(&trainer->state, 5, 1);
  absl::Status flushed;
  std::thread flush([&] { flushed = trainer->client->Flush(); });

  server.failed.Wait();
  server.Stop();
  server.log.fail_write = false;
  server.Start();
  flush.join();

  EXPECT_THAT(flushed, IsOk());
  auto other = AddTrainer();
  ExpectEqual(other->state, trainer->state);
  EXPECT_EQ(other->state.unpartitioned[0].embeddings.row(5)[0], 2);
}

TEST_F(ParamServiceTest, ALargeTableIsJoinedInPages) {
  SharedState big;
  big.unpartitioned.emplace_back(40'000, 64);  // 10 MB
  TestServer server(0, 1, SharedLayout::Of(big));
  ClusterParamClient client(
      {},
      [&]() -> absl::StatusOr<ClusterParamClient::Session> {
        return ClusterParamClient::Session{{{"run", 1, 0, 1}, 7}, {Connect(server.address)}};
      },
      Clock::Real());

  ASSERT_THAT(client.Join(&big), IsOk());

  for (const float f : big.unpartitioned[0].embeddings.span()) ASSERT_EQ(f, 1);
}

TEST_F(ParamServiceTest, RefusalsKeepTheirMeaningOnTheWay) {
  TestServer server(0, 1, TestLayout());
  const auto client = Connect(server.address);
  JoinRequest join{{{"run", 1, 0, 1}, 7}, TestLayout().hash(), 1, 0, {}};
  ASSERT_THAT(client->Join(join), IsOk());
  PushRequest push;
  push.caller = join.caller;
  push.number = 1;
  push.cursor = {1, 8};
  auto code = [&] { return client->Push(push).status().code(); };

  push.caller.context.run_id = "other";
  EXPECT_EQ(code(), absl::StatusCode::kFailedPrecondition);
  push.caller = join.caller;
  push.caller.context.generation = 0;
  EXPECT_EQ(code(), absl::StatusCode::kAborted);
  push.caller = join.caller;
  push.number = 5;
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  push.number = 1;
  push.rows = {{{0, 0, UINT32_MAX}}, {1, 1}};
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  push.rows = {{{0, 0, 1}}, {1, std::nanf("")}};
  EXPECT_EQ(code(), absl::StatusCode::kInvalidArgument);
  push.rows = {{{0, 0, 1}}, {1, 2}};
  EXPECT_EQ(code(), absl::StatusCode::kOk);
  EXPECT_EQ(server.store->stats().pushes, 1);
}

TEST_F(ParamServiceTest, CallsCarryTheNewestTermTheTrainerKnows) {
  TestServer server(0, 1, TestLayout());
  RunFence fence({"run", 1, 0, 1});
  const auto client = Connect(server.address, {absl::Seconds(10), &fence});
  const JoinRequest join{{{"run", 1, 0, 1}, 7}, TestLayout().hash(), 1, 0, {}};
  ASSERT_THAT(server.store->Heard({"run", 2, 0, std::nullopt}), IsOk());
  EXPECT_THAT(client->Join(join), StatusIs(absl::StatusCode::kUnavailable));

  ASSERT_THAT(fence.Check({"run", 2, 0, std::nullopt}), IsOk());
  EXPECT_THAT(client->Join(join), IsOk());
}

TEST(ParamConvertTest, RowsThatAreNotWhatTheySayAreRefused) {
  PushRequest push;
  push.caller = {{"run", 3, 4, 5}, 6};
  push.number = 7;
  push.pass = 8;
  push.rows = {{{0, 1, 1}, {1, 2, 2}}, {1, 2, 3, 4}};
  push.steps = 9;
  push.cursor = {10, 11};
  push.sync = true;
  const v1::PushRequest good = ToProto(push);
  const auto back = FromProto(good);
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->rows, push.rows);
  EXPECT_EQ(back->caller, push.caller);
  EXPECT_EQ(back->cursor, push.cursor);
  EXPECT_EQ(back->number, 7);
  EXPECT_EQ(back->pass, 8);
  EXPECT_EQ(back->steps, 9);
  EXPECT_TRUE(back->sync);

  v1::PushRequest bad = good;
  bad.mutable_rows()->add_tensor(1);
  EXPECT_THAT(FromProto(bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  bad.mutable_rows()->mutable_values()->pop_back();
  EXPECT_THAT(FromProto(bad), StatusIs(absl::StatusCode::kInvalidArgument));
  bad = good;
  (*bad.mutable_rows()->mutable_values())[5] ^= 1;
  EXPECT_THAT(FromProto(bad), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace weft
