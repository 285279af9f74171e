// What trainers see of RowBlockStore; orders are in row_block_orders_test.cc.
#include "services/param_server/row_block_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/param_server/store_fixture.h"
#include "tests/testing/recorded_metrics.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::Rows;
using testing::StatusIs;
using testing::StoreFixture;
using testing::TestLayout;
using testing::TestRow;

constexpr uint64_t kA = 11;
constexpr uint64_t kB = 12;

class RowBlockStoreTest : public ::testing::Test {
 protected:
  RowBlockStoreTest() {
    store_.InstallZeros();
    store_.Join(kA);
    store_.Join(kB);
  }
  std::vector<TestRow> RowsOf(const PushAnswer& answer) { return Rows(answer.rows, TestLayout()); }

  MemoryPushLog log_;
  StoreFixture store_{&log_};
};

TEST_F(RowBlockStoreTest, OthersSeeAPushOnTheirNextExchange) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}, {1, 1, {5}}}), IsOk());

  const auto answer = store_.Push(kB, 1, {});

  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(RowsOf(*answer), ElementsAre(TestRow{0, 1, {3, 4}}, TestRow{1, 1, {5}}));
  EXPECT_THAT(RowsOf(*store_.Push(kB, 2, {})), IsEmpty());
}

TEST_F(RowBlockStoreTest, DifferencesOfAllTrainersAddUp) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  const auto answer = store_.Push(kB, 1, {{0, 1, {10, 20}}});

  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(RowsOf(*answer), ElementsAre(TestRow{0, 1, {13, 24}}));
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{13, 24}));
}

TEST_F(RowBlockStoreTest, WhatOnlyTheTrainerItselfHasChangedIsNotSentBack) {
  const auto answer = store_.Push(kA, 1, {{0, 1, {3, 4}}});

  ASSERT_THAT(answer, IsOk());
  EXPECT_TRUE(answer->applied);
  EXPECT_THAT(RowsOf(*answer), IsEmpty());
  EXPECT_THAT(RowsOf(*store_.Push(kA, 2, {})), IsEmpty());
}

TEST_F(RowBlockStoreTest, ARepeatedPushIsAppliedOnce) {
  const PushRequest request = store_.Request(kA, 1, {{0, 1, {3, 4}}});
  ASSERT_THAT(store_.store->Push(request), IsOk());

  const auto again = store_.store->Push(request);

  ASSERT_THAT(again, IsOk());
  EXPECT_FALSE(again->applied);
  // The sender cannot know what the first answer would have told it.
  EXPECT_THAT(RowsOf(*again), ElementsAre(TestRow{0, 1, {3, 4}}));
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{3, 4}));
  EXPECT_EQ(store_.store->stats().pushes, 1);
  EXPECT_EQ(store_.store->stats().repeats, 1);
}

TEST_F(RowBlockStoreTest, AnOldPushThatComesLateChangesNothing) {
  const PushRequest late = store_.Request(kA, 1, {{0, 1, {3, 4}}});
  ASSERT_THAT(store_.store->Push(late), IsOk());
  ASSERT_THAT(store_.Push(kA, 2, {{0, 1, {1, 1}}}), IsOk());

  ASSERT_THAT(store_.store->Push(late), IsOk());

  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{4, 5}));
}

TEST_F(RowBlockStoreTest, AGapInTheNumbersIsRefused) {
  EXPECT_THAT(store_.Push(kA, 2, {{0, 1, {3, 4}}}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(store_.Push(kA, 0, {{0, 1, {3, 4}}}), StatusIs(absl::StatusCode::kInvalidArgument));

  EXPECT_EQ(store_.Refused(ParamRefusal::kBadNumber), 2);
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{0, 0}));
}

TEST_F(RowBlockStoreTest, NumbersThatAreNotFiniteAreRefused) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(store_.Push(kA, 1, {{0, 0, {1, 1}}, {0, 1, {0, bad}}}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  // Not finite only once it is added.
  const float huge = std::numeric_limits<float>::max();
  ASSERT_THAT(store_.Push(kA, 1, {{0, 2, {huge, 0}}}), IsOk());
  EXPECT_THAT(store_.Push(kA, 2, {{0, 2, {huge, 0}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));

  EXPECT_EQ(store_.Refused(ParamRefusal::kNotFinite), 3);
  EXPECT_EQ(store_.Row(0, 0), (std::vector<float>{0, 0}));
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{0, 0}));
}

TEST_F(RowBlockStoreTest, RowsThatAreNotThereAreRefused) {
  PushRequest request = store_.Request(kA, 1, {});
  auto refused = [&](std::vector<RowRun> runs, std::vector<float> values) {
    request.rows = {std::move(runs), std::move(values)};
    return absl::IsInvalidArgument(store_.store->Push(request).status());
  };
  EXPECT_TRUE(refused({{0, 4, 1}}, {1, 1}));           // no such row
  EXPECT_TRUE(refused({{2, 0, 1}}, {1, 1}));           // no such tensor
  EXPECT_TRUE(refused({{0, 0, 1}}, {1}));              // too few floats
  EXPECT_TRUE(refused({{0, 0, 1}}, {1, 1, 1}));        // too many
  EXPECT_TRUE(refused({{0, 0, UINT32_MAX}}, {1, 1}));  // a huge length
  EXPECT_TRUE(refused({{UINT32_MAX, UINT32_MAX, UINT32_MAX}}, {}));

  EXPECT_EQ(store_.Refused(ParamRefusal::kBadRows), 6);
  EXPECT_EQ(store_.Row(0, 0), (std::vector<float>{0, 0}));
  EXPECT_EQ(store_.store->stats().pushes, 0);
}

TEST_F(RowBlockStoreTest, WhatIsRefusedAndWhatIsRepeatedIsMeasured) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  PushRequest gap = store_.Request(kA, 5, {{0, 1, {3, 4}}});
  gap.cursor = store_.Push(kB, 1, {})->cursor;
  EXPECT_FALSE(store_.store->Push(gap).ok());
  store_.store->RefusedMalformed();

  testing::RecordedMetrics page;
  store_.store->WriteMetrics(&page);

  EXPECT_EQ(page.Value("weft_param_pushes_total"), 2);
  EXPECT_EQ(page.Value("weft_param_repeated_pushes_total"), 1);
  EXPECT_EQ(page.Value("weft_param_refused_calls_total{reason=bad_number}"), 1);
  EXPECT_EQ(page.Value("weft_param_refused_calls_total{reason=bad_rows}"), 1);
  EXPECT_EQ(page.Value("weft_param_refused_calls_total{reason=not_finite}"), 0);
  EXPECT_EQ(page.Value("weft_param_sessions"), 2);
  EXPECT_EQ(page.Value("weft_param_received_rows_total"), 1);
  EXPECT_GT(page.Value("weft_param_row_bytes"), page.Value("weft_param_rows"));
}

TEST_F(RowBlockStoreTest, CallersOfAnotherLifeAreRefused) {
  ASSERT_THAT(store_.store->Heard({"run", 5, 0, std::nullopt}), IsOk());
  PushRequest request = store_.Request(kA, 1, {{0, 1, {3, 4}}});
  request.caller.context.term = 4;
  EXPECT_THAT(store_.store->Push(request), StatusIs(absl::StatusCode::kUnavailable));
  request.caller.context.term = 5;
  request.caller.context.run_id = "other";
  EXPECT_THAT(store_.store->Push(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("other")));
  request.caller.context.run_id = "run";
  request.caller.context.generation = 0;
  EXPECT_THAT(store_.store->Push(request), StatusIs(absl::StatusCode::kAborted));
  request.caller.context.generation = 1;
  request.caller.incarnation = 99;
  EXPECT_THAT(store_.store->Push(request), StatusIs(absl::StatusCode::kFailedPrecondition));
  request.caller.context.generation = 2;  // this server has not yet been restored for it
  EXPECT_THAT(store_.store->Push(request), StatusIs(absl::StatusCode::kUnavailable));

  EXPECT_EQ(store_.Refused(ParamRefusal::kWrongRun), 1);
  EXPECT_EQ(store_.Refused(ParamRefusal::kOldLife), 2);
  EXPECT_EQ(store_.Refused(ParamRefusal::kNotJoined), 1);
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{0, 0}));
}

TEST_F(RowBlockStoreTest, ATrainerWithOtherParametersCannotJoin) {
  EXPECT_THAT(store_.store->Join({store_.Caller(kA), TestLayout().hash() + 1, 1, 0, {}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RowBlockStoreTest, WhatWasSentBeforeASecondJoinHasNoEffectAfterIt) {
  const PushRequest late = store_.Request(kA, 1, {{0, 1, {3, 4}}});

  const auto page = store_.JoinPageOf(kA, 0, {}, /*first_number=*/2);

  ASSERT_THAT(page, IsOk());
  EXPECT_EQ(page->first_number, 2);
  ASSERT_THAT(store_.store->Push(late), IsOk());
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{0, 0}));
  EXPECT_TRUE(store_.Push(kA, 2, {{0, 1, {1, 1}}})->applied);
}

TEST_F(RowBlockStoreTest, StepsAddUp) {
  PushRequest request = store_.Request(kA, 1, {});
  request.steps = 10;
  ASSERT_THAT(store_.store->Push(request), IsOk());
  ASSERT_THAT(store_.store->Push(request), IsOk());  // a repeat

  EXPECT_EQ(store_.Push(kB, 1, {})->steps, 10);
}

// With room for one row of tensor 0 (or one of each tensor) a message.
class SmallMessagesTest : public ::testing::Test {
 protected:
  SmallMessagesTest() { store_.InstallZeros(); }
  MemoryPushLog log_;
  StoreFixture store_{&log_, 100, 2 * RowBatch::kRunBytes + 12};
};

TEST_F(SmallMessagesTest, JoinGivesEveryRowOnceInPages) {
  std::vector<TestRow> rows;
  uint64_t page = 0;
  ParamCursor cursor;
  int pages = 0;
  do {
    const auto answer = store_.JoinPageOf(kA, page, cursor);
    ASSERT_THAT(answer, IsOk());
    EXPECT_LE(answer->rows.Bytes(), 2 * RowBatch::kRunBytes + 12);
    for (TestRow& row : Rows(answer->rows, TestLayout())) rows.push_back(std::move(row));
    page = answer->next_page;
    cursor = answer->cursor;
    ++pages;
  } while (page != 0);

  EXPECT_GT(pages, 1);
  ASSERT_EQ(rows.size(), 8);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i], (TestRow{0, i, {0, 0}}));
    EXPECT_EQ(rows[4 + i], (TestRow{1, i, {0}}));
  }
}

TEST_F(SmallMessagesTest, ARowThatChangesBetweenPagesComesWithTheNextAnswer) {
  const auto first = store_.JoinPageOf(kA);
  ASSERT_THAT(first, IsOk());
  store_.Join(kB);
  ASSERT_THAT(store_.Push(kB, 1, {{0, 0, {7, 7}}}), IsOk());
  const auto second = store_.JoinPageOf(kA, first->next_page, first->cursor);
  ASSERT_THAT(second, IsOk());
  store_.cursors[kA] = second->cursor;

  const auto answer = store_.Push(kA, 1, {});

  ASSERT_THAT(answer, IsOk());
  EXPECT_THAT(Rows(answer->rows, TestLayout()), ElementsAre(TestRow{0, 0, {7, 7}}));
}

TEST_F(SmallMessagesTest, AnAnswerIsCutInVersionOrderAndGoesOnFromThere) {
  store_.Join(kA);
  store_.cursors[kA] = {100, 8};  // all eight initial versions
  store_.cursors[kB] = store_.cursors[kA];
  store_.Join(kB);
  for (int i = 0; i < 4; ++i) {
    ASSERT_THAT(store_.Push(kB, i + 1, {{0, 3 - i, {1, 1}}}), IsOk());
  }

  std::vector<int64_t> order;
  bool more = true;
  for (uint64_t number = 1; more; ++number) {
    const auto answer = store_.Push(kA, number, {});
    ASSERT_THAT(answer, IsOk());
    for (const TestRow& row : Rows(answer->rows, TestLayout())) order.push_back(row.row);
    more = answer->more;
    ASSERT_LE(order.size(), 4);
  }

  EXPECT_THAT(order, ElementsAre(3, 2, 1, 0));
}

TEST_F(SmallMessagesTest, ARestartBetweenPagesIsNoticed) {
  const auto first = store_.JoinPageOf(kA);
  ASSERT_THAT(first, IsOk());
  StoreFixture restarted(&log_, 101);

  EXPECT_THAT(restarted.JoinPageOf(kA, first->next_page, first->cursor),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
