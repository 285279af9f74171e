#include "services/param_server/parameter_sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "services/param_server/memory_push_log.h"
#include "services/param_server/row_block_store.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::StatusIs;

TEST(ChangedRowsTest, EveryMarkIsTakenOnce) {
  ChangedRows marks(21);
  for (const int64_t row : {0, 7, 8, 15, 20}) MarkChanged(marks.data(), row);
  std::vector<int64_t> taken;
  TakeChanged(&marks, [&](int64_t row) { taken.push_back(row); });
  TakeChanged(&marks, [&](int64_t row) { taken.push_back(row); });

  EXPECT_THAT(taken, ::testing::ElementsAre(0, 7, 8, 15, 20));
}

// One parameter [2, 3] and one table [4, 2].
SharedState MakeState() {
  SharedState state;
  state.parameters.Add("p", {2, 3}, 2, 3);
  state.unpartitioned.emplace_back(4, 2);
  return state;
}

// A trainer with its live state, and its own copy of nothing else.
struct Trainer {
  Trainer(uint64_t incarnation, RowBlockStore* store, bool track = true,
          size_t max_bytes = kMaxParamMessageBytes)
      : caller{{"run", 1, 0, 1}, incarnation}, server(store) {
    state = MakeState();
    if (track) state.TrackChanges();
    sync = std::make_unique<ParameterSync>(&state, ParameterSync::Options{1, max_bytes});
    Join();
  }
  void Join() {
    std::optional<JoinRequest> request = sync->BeginJoin(0, caller);
    while (request) {
      auto page = server->Join(*request);
      ASSERT_THAT(page, IsOk());
      auto next = sync->AcceptPage(0, *page);
      ASSERT_THAT(next, IsOk());
      request = *next;
    }
  }
  Parameter& parameter() { return state.parameters.all()[0]; }
  EmbeddingPartition& table() { return state.unpartitioned[0]; }
  void AddToTable(int64_t row, float value) {
    for (float& f : table().embeddings.row(row)) f += value;
    table().adagrad_sums.row(row)[0] += value;
    if (!state.unpartitioned_changed.empty()) {
      MarkChanged(state.unpartitioned_changed[0].data(), row);
    }
  }
  PushAnswer Send() {
    auto answer = server->Push(sync->NextPush(0, 0, false));
    EXPECT_THAT(answer, IsOk());
    return *std::move(answer);
  }
  // Until there is nothing more to say.
  void Exchange() {
    sync->Collect();
    do {
      ASSERT_THAT(sync->Merge(0, Send()), IsOk());
    } while (sync->num_queued(0) > 0 || sync->more(0));
  }

  ParamCaller caller;
  RowBlockStore* server;
  SharedState state;
  std::unique_ptr<ParameterSync> sync;
};

class ParameterSyncTest : public ::testing::Test {
 protected:
  ParameterSyncTest() {
    store_ = *RowBlockStore::Open({100}, &log_);
    EXPECT_THAT(store_->Install({"run", 1, SharedLayout::Of(MakeState()), 0, 1}, 0,
                                [](RowTable* table) -> absl::StatusOr<int64_t> {
                                  for (int64_t i = 0; i < table->num_rows(); ++i) {
                                    for (float& f : table->values(i)) f = 1;
                                  }
                                  return 5;
                                }),
                IsOk());
  }

  MemoryPushLog log_;
  std::unique_ptr<RowBlockStore> store_;
};

TEST_F(ParameterSyncTest, JoinFillsTheLiveState) {
  Trainer a(1, store_.get());

  EXPECT_EQ(a.parameter().values.row(1)[2], 1);
  EXPECT_EQ(a.parameter().adagrad_sums.row(1)[2], 1);
  EXPECT_EQ(a.table().embeddings.row(3)[1], 1);
  EXPECT_EQ(a.table().adagrad_sums.row(3)[0], 1);
  EXPECT_EQ(a.state.parameters.steps, 5);
}

TEST_F(ParameterSyncTest, ChangesReachTheOthersWithTheirOptimizerSums) {
  Trainer a(1, store_.get());
  Trainer b(2, store_.get());
  a.AddToTable(2, 10);
  a.Exchange();
  b.Exchange();

  EXPECT_EQ(b.table().embeddings.row(2)[0], 11);
  EXPECT_EQ(b.table().adagrad_sums.row(2)[0], 11);
  EXPECT_EQ(b.table().embeddings.row(1)[0], 1);
}

TEST_F(ParameterSyncTest, WhatIsWrittenDuringTheRoundTripSurvives) {
  Trainer a(1, store_.get());
  Trainer b(2, store_.get());
  b.AddToTable(2, 100);
  b.Exchange();
  a.AddToTable(2, 10);
  a.sync->Collect();
  const PushAnswer answer = a.Send();
  a.AddToTable(2, 1000);
  ASSERT_THAT(a.sync->Merge(0, answer), IsOk());

  EXPECT_EQ(a.table().embeddings.row(2)[0], 1111);
  a.Exchange();
  b.Exchange();
  EXPECT_EQ(b.table().embeddings.row(2)[0], 1111);
}

TEST_F(ParameterSyncTest, OnlyRowsThatChangedAreSent) {
  Trainer a(1, store_.get());
  a.AddToTable(2, 10);
  a.AddToTable(3, 0);  // marked, but the same
  a.sync->Collect();

  const PushRequest& push = a.sync->NextPush(0, 0, false);

  EXPECT_EQ(push.rows.values, (std::vector<float>{10, 10, 10}));
  EXPECT_EQ(a.sync->num_queued(0), 0);
}

TEST_F(ParameterSyncTest, WithoutMarksAllRowsAreCompared) {
  Trainer a(1, store_.get(), /*track=*/false);
  Trainer b(2, store_.get());
  a.AddToTable(2, 10);
  a.parameter().values.row(1)[1] = 7;
  a.Exchange();
  b.Exchange();

  EXPECT_EQ(b.table().embeddings.row(2)[1], 11);
  EXPECT_EQ(b.parameter().values.row(1)[1], 7);
}

TEST_F(ParameterSyncTest, ARetryRepeatsTheSameBytes) {
  Trainer a(1, store_.get());
  a.AddToTable(2, 10);
  a.sync->Collect();
  const PushRequest first = a.sync->NextPush(0, 0, false);
  a.AddToTable(2, 5);
  a.sync->Collect();
  const PushRequest& again = a.sync->NextPush(0, 1, true);

  EXPECT_EQ(again.rows, first.rows);
  EXPECT_EQ(again.number, first.number);
  EXPECT_EQ(again.sync, first.sync);
  EXPECT_EQ(again.pass, first.pass);
}

TEST_F(ParameterSyncTest, ARoundThatIsTooLargeIsManyPushes) {
  Trainer a(1, store_.get(), true, RowBatch::kRunBytes + 8);
  Trainer b(2, store_.get());
  for (int64_t row = 0; row < 4; ++row) a.AddToTable(row, 10);
  a.sync->Collect();
  EXPECT_EQ(a.sync->num_queued(0), 8);
  a.Exchange();
  b.Exchange();

  EXPECT_EQ(store_->stats().pushes, 9);  // 8 rows of a's, and b's pull
  for (int64_t row = 0; row < 4; ++row) EXPECT_EQ(b.table().embeddings.row(row)[1], 11);
}

TEST_F(ParameterSyncTest, InFloatsToo) {
  Trainer a(1, store_.get());
  Trainer b(2, store_.get());
  for (int i = 0; i < 1000; ++i) {
    Trainer& t = i % 3 == 0 ? a : b;
    t.AddToTable(i % 4, 0.1f * static_cast<float>(std::sin(i)));
    if (i % 7 == 0) t.Exchange();
  }
  for (Trainer* t : {&a, &b, &a}) t->Exchange();

  for (int64_t row = 0; row < 4; ++row) {
    EXPECT_EQ(a.table().embeddings.row(row)[0], b.table().embeddings.row(row)[0]);
    EXPECT_EQ(a.table().adagrad_sums.row(row)[0], b.table().adagrad_sums.row(row)[0]);
  }
}

TEST_F(ParameterSyncTest, StepsOfAllTrainersAreCounted) {
  Trainer a(1, store_.get());
  Trainer b(2, store_.get());
  a.state.parameters.steps += 10;
  b.state.parameters.steps += 100;
  for (Trainer* t : {&a, &b, &a}) t->Exchange();

  EXPECT_EQ(a.state.parameters.steps, 115);
  EXPECT_EQ(b.state.parameters.steps, 115);
}

TEST_F(ParameterSyncTest, JoiningAgainDropsWhatWasNotSent) {
  Trainer a(1, store_.get());
  a.AddToTable(1, 10);
  a.Exchange();
  a.AddToTable(2, 10);
  a.sync->Collect();
  const PushRequest late = a.sync->NextPush(0, 0, false);
  a.Join();
  ASSERT_THAT(store_->Push(late), IsOk());  // comes after the join
  a.AddToTable(3, 10);
  a.Exchange();

  Trainer b(2, store_.get());
  EXPECT_EQ(b.table().embeddings.row(1)[0], 11);
  EXPECT_EQ(b.table().embeddings.row(2)[0], 1);
  EXPECT_EQ(b.table().embeddings.row(3)[0], 11);
  EXPECT_EQ(a.table().embeddings.row(2)[0], 1);
}

TEST_F(ParameterSyncTest, AnAnswerThatMakesNoSenseChangesNothing) {
  Trainer a(1, store_.get());
  auto refused = [&](RowBatch rows) {
    a.sync->NextPush(0, 0, false);
    PushAnswer answer;
    answer.rows = std::move(rows);
    return absl::IsInternal(a.sync->Merge(0, answer));
  };
  EXPECT_TRUE(refused({{{9, 0, 1}}, {1}}));
  EXPECT_TRUE(refused({{{0, 0, UINT32_MAX}}, {1, 1, 1}}));
  EXPECT_TRUE(refused({{{0, 0, 1}}, {1, 1}}));
  EXPECT_TRUE(refused({{{0, 0, 1}}, {1, 1, 1, 1}}));
  EXPECT_TRUE(refused({{{0, 0, 1}}, {1, 1, std::nanf("")}}));

  EXPECT_EQ(a.parameter().values.row(0)[0], 1);
}

TEST_F(ParameterSyncTest, WideRowsAreExchangedInPieces) {
  auto make = [] {
    SharedState state;
    state.parameters.Add("w", {1, kMaxRowFloats + 10}, 2, kMaxRowFloats + 10);
    state.TrackChanges();
    return state;
  };
  SharedState state = make();
  MemoryPushLog log;
  auto store = *RowBlockStore::Open({100}, &log);
  ASSERT_THAT(store->Install({"run", 1, SharedLayout::Of(state), 0, 1}, 0,
                             [](RowTable*) -> absl::StatusOr<int64_t> { return 0; }),
              IsOk());
  ParameterSync sync(&state, {});
  std::optional<JoinRequest> request = sync.BeginJoin(0, {{"run", 1, 0, 1}, 7});
  while (request) request = *sync.AcceptPage(0, *store->Join(*request));
  Parameter& p = state.parameters.all()[0];
  for (float& f : p.values.row(1)) f += 3;
  MarkChanged(p.changed.data(), 1);
  sync.Collect();
  ASSERT_THAT(sync.Merge(0, *store->Push(sync.NextPush(0, 0, false))), IsOk());
  EXPECT_EQ(sync.num_queued(0), 0);

  const auto snapshot = store->Snapshot(1, std::nullopt);
  ASSERT_THAT(snapshot, IsOk());
  double sum = 0;
  for (const float f : (*snapshot)->values.span()) sum += f;
  EXPECT_EQ(sum, 3.0 * (kMaxRowFloats + 10));
}

}  // namespace
}  // namespace weft
