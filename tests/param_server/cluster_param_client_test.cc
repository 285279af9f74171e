#include "services/param_server/cluster_param_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>
#include <utility>

#include "services/param_server/memory_push_log.h"
#include "services/param_server/row_block_store.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::FakeClock;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

// A server in this process, and what can go wrong on the way to it.
class FakeServer {
 public:
  explicit FakeServer(int index, int num_servers, const SharedLayout& layout) {
    store = *RowBlockStore::Open({static_cast<uint64_t>(100 + index)}, &log);
    EXPECT_THAT(store->Install({"run", 1, layout, index, num_servers}, 0,
                               [](RowTable*) -> absl::StatusOr<int64_t> { return 0; }),
                IsOk());
  }

  MemoryPushLog log{/*keep_unsynced=*/true};
  std::unique_ptr<RowBlockStore> store;
  std::atomic<bool> down = false;
  std::atomic<int> calls_while_down = 0;
  std::atomic<int> answers_to_lose = 0;
  std::function<void(const PushRequest&)> before_push;  // set before Join
};

class DirectClient : public ParamServerClient {
 public:
  explicit DirectClient(FakeServer* server) : server_(server) {}

  absl::StatusOr<JoinPage> Join(const JoinRequest& request) override {
    return Call([&] { return server_->store->Join(request); });
  }
  absl::StatusOr<PushAnswer> Push(const PushRequest& request) override {
    if (server_->before_push) server_->before_push(request);
    return Call([&] { return server_->store->Push(request); });
  }
  void Cancel() override { cancelled_ = true; }
  std::string address() const override { return "here:1"; }

 private:
  template <typename F>
  auto Call(F call) -> decltype(call()) {
    if (cancelled_) return absl::CancelledError("cancelled");
    if (server_->down) {
      ++server_->calls_while_down;
      return absl::UnavailableError("down");
    }
    auto answer = call();
    if (server_->answers_to_lose > 0) {
      --server_->answers_to_lose;
      return absl::DeadlineExceededError("lost");
    }
    return answer;
  }

  FakeServer* const server_;
  std::atomic<bool> cancelled_ = false;
};

SharedState MakeState() {
  SharedState state;
  for (int i = 0; i < 6; ++i) state.parameters.Add("p" + std::to_string(i), {2, 3}, 2, 3);
  state.unpartitioned.emplace_back(40, 2);
  return state;
}

class ClusterParamClientTest : public ::testing::Test {
 protected:
  struct Trainer {
    SharedState state = MakeState();
    uint64_t incarnation = 0;
    std::unique_ptr<ClusterParamClient> client;
  };

  void Start(int num_servers) {
    const SharedLayout layout = SharedLayout::Of(MakeState());
    for (int i = 0; i < num_servers; ++i) {
      servers_.push_back(std::make_unique<FakeServer>(i, num_servers, layout));
    }
  }
  // `interval` of an hour: only flushes exchange anything.
  std::unique_ptr<Trainer> AddTrainer(absl::Duration interval = absl::Hours(1),
                                      const Clock& clock = Clock::Real()) {
    auto trainer = std::make_unique<Trainer>();
    trainer->incarnation = ++incarnations_;
    ClusterParamClient::Options options;
    options.interval = interval;
    options.retry.first_delay = absl::Microseconds(100);
    options.retry.max_delay = absl::Milliseconds(1);
    trainer->client = std::make_unique<ClusterParamClient>(
        options,
        [this, t = trainer.get()]() -> absl::StatusOr<ClusterParamClient::Session> {
          ClusterParamClient::Session session{
              {{"run", 1, 0, 1}, t->incarnation}, {}, session_status_};
          for (auto& server : servers_) {
            session.servers.push_back(std::make_shared<DirectClient>(server.get()));
          }
          return session;
        },
        clock);
    return trainer;
  }

  static void Add(SharedState* state, int64_t row, float value) {
    for (float& f : state->unpartitioned[0].embeddings.row(row)) {
      std::atomic_ref(f).fetch_add(value, std::memory_order_relaxed);
    }
    MarkChanged(state->unpartitioned_changed[0].data(), row);
    Parameter& p = state->parameters.all()[static_cast<size_t>(row) % 6];
    for (float& f : p.values.row(1)) std::atomic_ref(f).fetch_add(value, std::memory_order_relaxed);
    MarkChanged(p.changed.data(), 1);
  }
  static void ExpectEqual(const SharedState& a, const SharedState& b) {
    for (size_t i = 0; i < a.parameters.all().size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(a.parameters.all()[i].values.span(),
                                     b.parameters.all()[i].values.span()));
    }
    EXPECT_TRUE(std::ranges::equal(a.unpartitioned[0].embeddings.span(),
                                   b.unpartitioned[0].embeddings.span()));
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  uint64_t incarnations_ = 0;
  std::function<absl::Status()> session_status_;
};

TEST_F(ClusterParamClientTest, AServerIsNotWaitedForOnceTheSessionIsOver) {
  Start(1);
  servers_[0]->down = true;
  session_status_ = [this]() -> absl::Status {
    if (servers_[0]->calls_while_down < 3) return absl::OkStatus();
    return absl::AbortedError("the session has ended");
  };
  auto trainer = AddTrainer();

  EXPECT_THAT(trainer->client->Join(&trainer->state), StatusIs(absl::StatusCode::kAborted));

  EXPECT_EQ(servers_[0]->calls_while_down, 3);
}

TEST_F(ClusterParamClientTest, TrainersOfSeveralServersComeToTheSameValues) {
  Start(3);
  auto a = AddTrainer();
  auto b = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  auto train = [](Trainer* t) {
    for (int i = 0; i < 200; ++i) {
      Add(&t->state, i % 40, 1);
      if (i % 10 == 0) {
        EXPECT_THAT(t->client->Flush(), IsOk());
      }
    }
    EXPECT_THAT(t->client->Flush(), IsOk());
  };
  std::thread other(train, b.get());
  train(a.get());
  other.join();
  EXPECT_THAT(a->client->Flush(), IsOk());
  EXPECT_THAT(b->client->Flush(), IsOk());

  ExpectEqual(a->state, b->state);
  for (int64_t row = 0; row < 40; ++row) {
    EXPECT_EQ(a->state.unpartitioned[0].embeddings.row(row)[1], 10);
  }
  for (const auto& server : servers_) EXPECT_GT(server->store->stats().rows_received, 0);
}

TEST_F(ClusterParamClientTest, RoundsGoOnWhileWorkersWrite) {
  Start(2);
  auto a = AddTrainer(absl::ZeroDuration());
  auto b = AddTrainer(absl::ZeroDuration());
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  auto train = [](Trainer* t) {
    for (int i = 0; i < 2000; ++i) Add(&t->state, i % 40, 1);
    EXPECT_THAT(t->client->Flush(), IsOk());
  };
  std::thread other(train, b.get());
  train(a.get());
  other.join();
  for (Trainer* t : {a.get(), b.get(), a.get()}) EXPECT_THAT(t->client->Flush(), IsOk());

  ExpectEqual(a->state, b->state);
}

TEST_F(ClusterParamClientTest, AFlushIsDurable) {
  Start(2);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  for (int64_t row = 0; row < 40; ++row) Add(&a->state, row, 2);
  ASSERT_THAT(a->client->Flush(), IsOk());
  for (const auto& server : servers_) {
    EXPECT_EQ(server->log.num_unsynced(), 0);
    server->log.Crash(0);
  }

  auto b = AddTrainer();
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  ExpectEqual(a->state, b->state);
  EXPECT_EQ(b->state.unpartitioned[0].embeddings.row(3)[0], 2);
}

TEST_F(ClusterParamClientTest, WhatIsRepeatedAfterALostAnswerCountsOnce) {
  Start(1);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  servers_[0]->answers_to_lose = 3;
  Add(&a->state, 5, 2);
  ASSERT_THAT(a->client->Flush(), IsOk());

  auto b = AddTrainer();
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  EXPECT_EQ(b->state.unpartitioned[0].embeddings.row(5)[0], 2);
  EXPECT_EQ(servers_[0]->store->stats().repeats, 3);
}

TEST_F(ClusterParamClientTest, ASessionThatIsOverEndsTheExchangeUntilTheNextJoin) {
  Start(1);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  ASSERT_THAT(servers_[0]->store->EndSessions({a->incarnation}), IsOk());
  Add(&a->state, 5, 2);

  std::atomic<bool> stop = false;
  EXPECT_THAT(a->client->Flush(), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(a->client->WaitUntilFresh(stop), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(a->client->Join(&a->state), StatusIs(absl::StatusCode::kAborted));
  a->incarnation = ++incarnations_;
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  EXPECT_EQ(a->state.unpartitioned[0].embeddings.row(5)[0], 0);
  Add(&a->state, 6, 2);
  EXPECT_THAT(a->client->Flush(), IsOk());
  EXPECT_THAT(a->client->WaitUntilFresh(stop), IsOk());
}

TEST_F(ClusterParamClientTest, AServerThatDoesNotKnowTheSessionMeansANewOne) {
  Start(1);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  a->client->BeginPass(3);
  ASSERT_THAT(servers_[0]->store->Cut(1, 4), IsOk());
  Add(&a->state, 5, 2);

  EXPECT_THAT(a->client->Flush(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("parameter server 0")));
}

TEST_F(ClusterParamClientTest, APushThatMeetsTheCutBelongsToTheNextPass) {
  Start(1);
  auto a = AddTrainer();
  bool cut = false;
  servers_[0]->before_push = [&](const PushRequest& request) {
    if (std::exchange(cut, true)) return;
    EXPECT_EQ(request.pass, 0);
    EXPECT_THAT(servers_[0]->store->Cut(1, 1), IsOk());
    a->client->BeginPass(1);
  };
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  Add(&a->state, 3, 1.5f);

  EXPECT_THAT(a->client->Flush(), IsOk());

  EXPECT_TRUE(cut);
  EXPECT_EQ(servers_[0]->store->Snapshot(1, std::nullopt)->get()->first_open_pass, 1);
  auto b = AddTrainer();
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  ExpectEqual(a->state, b->state);
}

TEST_F(ClusterParamClientTest, APushOfAPassThatIsOverEndsTheSession) {
  Start(1);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  ASSERT_THAT(servers_[0]->store->Cut(1, 1), IsOk());
  Add(&a->state, 3, 1.5f);

  EXPECT_THAT(a->client->Flush(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("pass 0 is over")));
}

TEST_F(ClusterParamClientTest, NumbersThatAreNotFiniteStopTheRun) {
  Start(1);
  auto a = AddTrainer();
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  Add(&a->state, 5, std::nanf(""));

  EXPECT_THAT(a->client->Flush(), StatusIs(absl::StatusCode::kInvalidArgument));
  auto b = AddTrainer();
  ASSERT_THAT(b->client->Join(&b->state), IsOk());
  EXPECT_EQ(b->state.unpartitioned[0].embeddings.row(5)[0], 0);
}

TEST_F(ClusterParamClientTest, AnOutageHoldsWorkersOnlyWhenTheirCopyIsTooOld) {
  Start(1);
  FakeClock clock;
  auto a = AddTrainer(absl::ZeroDuration(), clock);
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  ASSERT_THAT(a->client->Flush(), IsOk());
  servers_[0]->down = true;
  while (servers_[0]->calls_while_down == 0) std::this_thread::yield();
  std::atomic<bool> stop = false;
  clock.Advance(absl::Seconds(59));
  EXPECT_THAT(a->client->WaitUntilFresh(stop), IsOk());
  EXPECT_EQ(a->client->stats().stale_waits, 0);

  clock.Advance(absl::Seconds(2));
  std::atomic<bool> released = false;
  std::thread worker([&] {
    EXPECT_THAT(a->client->WaitUntilFresh(stop), IsOk());
    released = true;
  });
  while (a->client->stats().stale_waits == 0) std::this_thread::yield();
  EXPECT_FALSE(released);
  servers_[0]->down = false;
  worker.join();
}

TEST_F(ClusterParamClientTest, AWorkerThatWaitsCanBeStopped) {
  Start(1);
  FakeClock clock;
  auto a = AddTrainer(absl::Hours(1), clock);
  ASSERT_THAT(a->client->Join(&a->state), IsOk());
  clock.Advance(absl::Minutes(59));
  servers_[0]->down = true;
  std::atomic<bool> stop = true;

  EXPECT_THAT(a->client->WaitUntilFresh(stop), IsOk());
  EXPECT_EQ(a->client->stats().stale_waits, 1);
}

TEST_F(ClusterParamClientTest, WithoutServersNothingCanBeShared) {
  auto a = AddTrainer();
  EXPECT_THAT(a->client->Join(&a->state), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(a->client->Flush(), StatusIs(absl::StatusCode::kFailedPrecondition));

  a->state = SharedState();
  std::atomic<bool> stop = false;
  EXPECT_THAT(a->client->Join(&a->state), IsOk());
  EXPECT_THAT(a->client->Flush(), IsOk());
  EXPECT_THAT(a->client->WaitUntilFresh(stop), IsOk());
}

TEST_F(ClusterParamClientTest, ATrainerWithOtherParametersIsTurnedAway) {
  Start(1);
  auto a = AddTrainer();
  a->state.parameters.Add("more", {1}, 1, 1);

  EXPECT_THAT(a->client->Join(&a->state),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("other names")));
}

}  // namespace
}  // namespace weft
