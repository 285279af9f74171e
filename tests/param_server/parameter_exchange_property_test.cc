// Random runs of the whole exchange: trainers that add small integers to their live rows, messages
// that are delayed, repeated, dropped and reordered, servers that restart and lose what they had
// not synced, trainers that join and leave, rewinds. Integers make every sum exact, so at the end
//
//   V = start + every push that a server applied and did not lose, once       (I9)
//   L = V in every trainer
//   what a trainer pushed = what it added
//
// WEFT_SEED gives one seed, WEFT_SEEDS how many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "services/common/random.h"
#include "services/param_server/memory_push_log.h"
#include "services/param_server/parameter_sync.h"
#include "services/param_server/row_block_store.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;

constexpr int kServers = 2;
constexpr float kStart = 100;

SharedState MakeState() {
  SharedState state;
  // Several blocks, so that both servers have some.
  for (int i = 0; i < 4; ++i) state.parameters.Add("p" + std::to_string(i), {2, 2}, 2, 2);
  state.unpartitioned.emplace_back(6, 2);
  return state;
}

// All floats of a state, in the order of its layout.
using Floats = std::vector<std::vector<float>>;

struct Faults {
  bool drops = true;
  bool restarts = true;
  bool lost_tails = true;
  bool sessions = true;
  bool rewinds = true;
};

class World {
 public:
  World(uint64_t seed, const Faults& faults)
      : random_(seed, RandomUse::kTest, 1), faults_(faults), layout_(SharedLayout::Of(state_)) {
    for (int s = 0; s < kServers; ++s) {
      servers_.push_back(std::make_unique<Server>());
      Open(s);
      Install(s, [](RowTable* table) {
        for (int64_t i = 0; i < table->num_rows(); ++i) {
          for (float& f : table->values(i)) f = kStart;
        }
      });
    }
    for (uint32_t t = 0; t < layout_.num_tensors(); ++t) {
      expected_.emplace_back(static_cast<size_t>(layout_.tensor(t).size), kStart);
    }
    for (int i = 0; i < 3; ++i) AddTrainer();
  }

  void Run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFatalFailure(); ++i) Event();
  }

  // Nothing more happens but exchanges that succeed.
  void Settle() {
    messages_.clear();
    for (int round = 0; round < 4; ++round) {
      for (auto& trainer : trainers_) {
        for (int s = 0; s < kServers; ++s) Exchange(*trainer, s);
      }
    }
  }

  void Check() {
    for (size_t i = 0; i < trainers_.size(); ++i) {
      Trainer& t = *trainers_[i];
      EXPECT_EQ(Live(t), expected_) << "trainer " << i;
      if (t.dropped) continue;
      EXPECT_EQ(t.pushed, t.added) << "trainer " << i;
    }
    if (faults_.lost_tails || faults_.rewinds || faults_.sessions) return;
    Floats sum = Zeros(kStart);
    for (auto& t : trainers_) Add(t->added, &sum);
    EXPECT_EQ(expected_, sum);
  }

  int64_t crashes() const { return crashes_; }
  int64_t lost() const { return lost_; }
  int64_t repeats() const {
    int64_t repeats = 0;
    for (const auto& s : servers_) repeats += s->store->stats().repeats;
    return repeats;
  }

 private:
  struct Server {
    MemoryPushLog log{/*keep_unsynced=*/true};
    std::unique_ptr<RowBlockStore> store;
    uint64_t incarnation = 0;
    // The writes that Sync has not covered; those that are pushes, with their rows.
    std::vector<std::optional<RowBatch>> unsynced;
  };
  struct Trainer {
    SharedState state = MakeState();
    std::unique_ptr<ParameterSync> sync;
    ParamCaller caller;
    Floats added;                                // since it has joined
    Floats pushed;                               // by pushes, each counted once
    std::set<std::pair<int, uint64_t>> numbers;  // of these pushes
    bool dropped = false;                        // has dropped what it had not sent
  };
  struct Message {
    size_t trainer = 0;
    int server = 0;
    std::optional<PushRequest> request;
    uint64_t number = 0;  // of the push that is answered
    uint64_t incarnation = 0;
    PushAnswer answer;
  };

  Floats Zeros(float value = 0) const {
    Floats zeros;
    for (uint32_t t = 0; t < layout_.num_tensors(); ++t) {
      zeros.emplace_back(static_cast<size_t>(layout_.tensor(t).size), value);
    }
    return zeros;
  }
  static void Add(const Floats& from, Floats* to) {
    for (size_t t = 0; t < from.size(); ++t) {
      for (size_t i = 0; i < from[t].size(); ++i) (*to)[t][i] += from[t][i];
    }
  }
  void AddRows(const RowBatch& rows, float sign, Floats* to) const {
    size_t at = 0;
    for (const RowRun& run : rows.runs) {
      const SharedTensor& tensor = layout_.tensor(run.tensor);
      const auto first = static_cast<size_t>(tensor.RowOffset(run.first));
      const size_t n =
          static_cast<size_t>(tensor.RowOffset(int64_t{run.first} + run.count)) - first;
      for (size_t i = 0; i < n; ++i) (*to)[run.tensor][first + i] += sign * rows.values[at++];
    }
  }
  Floats Live(Trainer& t) {
    Floats live;
    for (const LiveGroup& group : LiveGroups(&t.state)) {
      for (int i = 0; i < 2; ++i) {
        live.emplace_back(group.values[i], group.values[i] + group.rows * group.cols[i]);
      }
    }
    return live;
  }

  void Open(int s) {
    Server& server = *servers_[static_cast<size_t>(s)];
    server.incarnation = ++incarnations_;
    auto store = RowBlockStore::Open({server.incarnation, kMessageBytes}, &server.log);
    ASSERT_THAT(store, IsOk());
    server.store = *std::move(store);
  }
  template <typename FillTable>
  void Install(int s, FillTable fill) {
    Server& server = *servers_[static_cast<size_t>(s)];
    ASSERT_THAT(server.store->Install({"run", generation_, layout_, s, kServers}, 0,
                                      [&](RowTable* table) -> absl::StatusOr<int64_t> {
                                        fill(table);
                                        return 0;
                                      }),
                IsOk());
    server.unsynced.clear();
  }

  void AddTrainer() {
    auto trainer = std::make_unique<Trainer>();
    trainer->state.TrackChanges();
    trainer->sync = std::make_unique<ParameterSync>(
        &trainer->state, ParameterSync::Options{kServers, kMessageBytes});
    trainers_.push_back(std::move(trainer));
    Join(*trainers_.back());
  }
  // With a new session.
  void Join(Trainer& t) {
    t.caller = {{"run", 1, 0, generation_}, ++incarnations_};
    for (int s = 0; s < kServers; ++s) {
      RowBlockStore& store = *servers_[static_cast<size_t>(s)]->store;
      std::optional<JoinRequest> request = t.sync->BeginJoin(s, t.caller);
      while (request) {
        auto page = store.Join(*request);
        ASSERT_THAT(page, IsOk());
        auto next = t.sync->AcceptPage(s, *page);
        ASSERT_THAT(next, IsOk());
        request = *next;
      }
      servers_[static_cast<size_t>(s)]->unsynced.clear();  // a join is synced
    }
    t.added = t.pushed = Zeros();
    t.numbers.clear();
  }

  void Event() {
    const size_t i = random_.Below(static_cast<uint32_t>(trainers_.size()));
    const int s = static_cast<int>(random_.Below(kServers));
    const uint32_t what = random_.Below(1000);
    if (what < 400) {
      Train(*trainers_[i]);
    } else if (what < 600) {
      Send(i, s);
    } else if (what < 960) {
      Deliver();
    } else if (what < 980) {
      if (faults_.restarts) Restart(s);
    } else if (what < 990) {
      if (faults_.sessions && random_.Below(4) == 0) EndSession(*trainers_[i]);
    } else if (what < 993) {
      if (faults_.rewinds) Rewind();
    } else if (trainers_.size() < 5) {
      AddTrainer();
    }
  }

  void Train(Trainer& t) {
    const auto groups = LiveGroups(&t.state);
    const auto g = random_.Below(static_cast<uint32_t>(groups.size()));
    const LiveGroup& group = groups[g];
    const auto row = static_cast<int64_t>(random_.Below(static_cast<uint32_t>(group.rows)));
    for (int i = 0; i < 2; ++i) {
      for (int64_t c = 0; c < group.cols[i]; ++c) {
        const auto add = static_cast<float>(static_cast<int>(random_.Below(7)) - 3);
        group.values[i][row * group.cols[i] + c] += add;
        t.added[2 * g + static_cast<size_t>(i)][static_cast<size_t>(row * group.cols[i] + c)] +=
            add;
      }
    }
    MarkChanged(group.changed->data(), row);
  }

  const PushRequest& Request(Trainer& t, int s) {
    t.sync->Collect();
    const PushRequest& push =
        t.sync->NextPush(s, 0, faults_.lost_tails ? random_.Below(3) == 0 : true);
    if (t.numbers.insert({s, push.number}).second) AddRows(push.rows, 1, &t.pushed);
    return push;
  }

  void Send(size_t i, int s) {
    Message message;
    message.trainer = i;
    message.server = s;
    message.request = Request(*trainers_[i], s);
    messages_.push_back(message);
    if (random_.Below(4) == 0) messages_.push_back(std::move(message));
  }

  void Deliver() {
    if (messages_.empty()) return;
    const size_t which = random_.Below(static_cast<uint32_t>(messages_.size()));
    Message message = std::move(messages_[which]);
    messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(which));
    if (faults_.drops && random_.Below(6) == 0) return;
    Trainer& t = *trainers_[message.trainer];
    if (message.request) {
      const absl::StatusOr<PushAnswer> answer = Serve(message.server, *message.request);
      if (answer.ok()) {
        Message back;
        back.trainer = message.trainer;
        back.server = message.server;
        back.number = message.request->number;
        back.incarnation = message.request->caller.incarnation;
        back.answer = *answer;
        messages_.push_back(std::move(back));
      } else if (message.request->caller == t.caller) {
        // Its session is over or the run was rewound: it begins anew.
        ASSERT_TRUE(absl::IsAborted(answer.status()) || absl::IsFailedPrecondition(answer.status()))
            << answer.status();
        t.dropped = true;
        Join(t);
      }
    } else if (message.incarnation == t.caller.incarnation) {
      // The answer of any attempt, but of no other push.
      const PushRequest& push = Request(t, message.server);
      if (push.number == message.number) {
        ASSERT_THAT(t.sync->Merge(message.server, message.answer), IsOk());
      }
    }
  }

  absl::StatusOr<PushAnswer> Serve(int s, const PushRequest& request) {
    Server& server = *servers_[static_cast<size_t>(s)];
    absl::StatusOr<PushAnswer> answer = server.store->Push(request);
    if (answer.ok() && answer->applied) {
      AddRows(request.rows, 1, &expected_);
      server.unsynced.push_back(request.rows);
    }
    if (server.log.num_unsynced() == 0) server.unsynced.clear();
    EXPECT_EQ(server.log.num_unsynced(), server.unsynced.size());
    return answer;
  }

  void Restart(int s) {
    Server& server = *servers_[static_cast<size_t>(s)];
    size_t surviving = server.unsynced.size();
    if (faults_.lost_tails) surviving = random_.Below(static_cast<uint32_t>(surviving + 1));
    for (size_t i = surviving; i < server.unsynced.size(); ++i) {
      if (!server.unsynced[i]) continue;
      AddRows(*server.unsynced[i], -1, &expected_);
      ++lost_;
    }
    server.store.reset();
    server.log.Crash(surviving);
    server.unsynced.clear();
    Open(s);
    ++crashes_;
  }

  void EndSession(Trainer& t) {
    for (auto& server : servers_) {
      ASSERT_THAT(server->store->EndSessions({t.caller.incarnation}), IsOk());
      server->unsynced.clear();
    }
    t.dropped = true;
    Join(t);
  }

  // To what the servers have now, or had some time ago.
  void Rewind() {
    std::vector<std::shared_ptr<const ParamSnapshot>> now;
    for (auto& server : servers_)
      now.push_back(*server->store->Snapshot(generation_, std::nullopt));
    if (snapshots_.empty() || random_.Below(2) == 0) {
      snapshots_ = std::move(now);
      snapshot_expected_ = expected_;
      return;
    }
    ++generation_;
    expected_ = snapshot_expected_;
    for (int s = 0; s < kServers; ++s) {
      Install(s, [&](RowTable* table) {
        SnapshotRestore restore(table);
        for (const auto& snapshot : snapshots_) ASSERT_THAT(restore.Add(*snapshot), IsOk());
        ASSERT_THAT(restore.Finish(), IsOk());
      });
    }
  }

  void Exchange(Trainer& t, int s) {
    if (*t.caller.context.generation < generation_) {
      t.dropped = true;
      Join(t);
    }
    do {
      const auto answer = Serve(s, Request(t, s));
      ASSERT_THAT(answer, IsOk());
      ASSERT_THAT(t.sync->Merge(s, *answer), IsOk());
    } while (t.sync->num_queued(s) > 0 || t.sync->more(s));
  }

  // A few rows a message, so that answers are cut.
  static constexpr size_t kMessageBytes = 4 * RowBatch::kRunBytes + 32;

  RandomStream random_;
  const Faults faults_;
  SharedState state_ = MakeState();
  const SharedLayout layout_;
  uint64_t generation_ = 1;
  uint64_t incarnations_ = 1000;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  std::vector<Message> messages_;
  Floats expected_;
  std::vector<std::shared_ptr<const ParamSnapshot>> snapshots_;
  Floats snapshot_expected_;
  int64_t crashes_ = 0;
  int64_t lost_ = 0;
};

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoll(value) : otherwise;
}

class ParameterExchangePropertyTest : public ::testing::TestWithParam<Faults> {};

TEST_P(ParameterExchangePropertyTest, EveryPushCountsOnceAndAllCopiesAgree) {
  const int64_t first = FromEnvironment("WEFT_SEED", 1);
  const int64_t seeds = FromEnvironment("WEFT_SEEDS", 200);
  int64_t crashes = 0;
  int64_t lost = 0;
  int64_t repeats = 0;
  for (int64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE("WEFT_SEED=" + std::to_string(seed));
    World world(static_cast<uint64_t>(seed), GetParam());
    world.Run(600);
    world.Settle();
    world.Check();
    crashes += world.crashes();
    lost += world.lost();
    repeats += world.repeats();
    if (HasFailure()) break;
  }
  std::cout << seeds << " seeds from " << first << ": " << crashes << " restarts, " << lost
            << " pushes lost, " << repeats << " repeats\n";
  EXPECT_GT(repeats, 0);
  EXPECT_EQ(crashes > 0, GetParam().restarts);
  EXPECT_EQ(lost > 0, GetParam().lost_tails);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, ParameterExchangePropertyTest,
    ::testing::Values(Faults{true, false, false, false, false},  // the network alone
                      Faults{true, true, false, false, false},   // and processes that restart
                      Faults{true, true, true, false, false},    // and machines that fail
                      Faults{}));

}  // namespace
}  // namespace weft
