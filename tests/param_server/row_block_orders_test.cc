// Orders of the lock server, restarts and failing disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/param_server/row_block_store.h"
#include "tests/param_server/failing_push_log.h"
#include "tests/param_server/store_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::FailingPushLog;
using testing::IsOk;
using testing::Rows;
using testing::StatusIs;
using testing::StoreFixture;
using testing::TestLayout;

constexpr uint64_t kA = 11;
constexpr uint64_t kB = 12;

std::vector<float> RowOf(const ParamSnapshot& snapshot, uint32_t tensor, int64_t row) {
  RowTable table(snapshot.layout, snapshot.ranges);
  SnapshotRestore restore(&table);
  EXPECT_THAT(restore.Add(snapshot), IsOk());
  const auto floats = table.values(table.Find(tensor, row));
  return {floats.begin(), floats.end()};
}

class RowBlockOrdersTest : public ::testing::Test {
 protected:
  RowBlockOrdersTest() {
    store_.InstallZeros();
    store_.Join(kA);
  }
  PushRequest InPass(uint64_t number, int64_t pass) {
    PushRequest request = store_.Request(kA, number, {{0, 1, {3, 4}}});
    request.pass = pass;
    return request;
  }

  MemoryPushLog log_{/*keep_unsynced=*/true};
  StoreFixture store_{&log_};
};

TEST_F(RowBlockOrdersTest, NothingIsThereBeforeTheFirstOrder) {
  MemoryPushLog log;
  StoreFixture fresh(&log);

  EXPECT_FALSE(fresh.store->share().has_value());
  EXPECT_THAT(fresh.JoinPageOf(kA), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(fresh.Push(kA, 1, {}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(fresh.store->Cut(1, 1), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(RowBlockOrdersTest, ARepeatedInitialisationChangesNothing) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());

  ASSERT_THAT(store_.Install(1, 9), IsOk());

  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{3, 4}));
}

TEST_F(RowBlockOrdersTest, ARewindReplacesRowsAndEndsAllSessions) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());

  ASSERT_THAT(store_.Install(2, 9), IsOk());

  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{9, 9}));
  EXPECT_THAT(store_.Push(kA, 2, {{0, 1, {3, 4}}}), StatusIs(absl::StatusCode::kAborted));
  store_.generation = 2;
  EXPECT_THAT(store_.Push(kA, 2, {{0, 1, {3, 4}}}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(store_.Install(1, 5), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{9, 9}));
}

TEST_F(RowBlockOrdersTest, AnotherRunIsRefused) {
  auto share = store_.Share(2);
  share.run_id = "other";
  EXPECT_THAT(
      store_.store->Install(share, 0, [](RowTable*) -> absl::StatusOr<int64_t> { return 0; }),
      StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(RowBlockOrdersTest, ACrashDuringARewindLeavesNothingHalf) {
  FailingPushLog failing(&log_);
  StoreFixture store(&failing, 101);
  failing.fail_sync = true;
  EXPECT_THAT(store.Install(2, 9), StatusIs(absl::StatusCode::kInternal));
  EXPECT_FALSE(store.store->failed().ok());

  StoreFixture restarted(&log_, 102);
  EXPECT_FALSE(restarted.store->share().has_value());
  ASSERT_THAT(restarted.Install(2, 9), IsOk());
  EXPECT_EQ(restarted.Row(0, 1), (std::vector<float>{9, 9}));
}

TEST_F(RowBlockOrdersTest, AFailedRestoreCanBeOrderedAgain) {
  EXPECT_THAT(store_.store->Install(
                  store_.Share(2), 0,
                  [](RowTable*) -> absl::StatusOr<int64_t> { return absl::UnavailableError("x"); }),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(store_.store->share().has_value());
  EXPECT_THAT(store_.Push(kA, 1, {}), StatusIs(absl::StatusCode::kUnavailable));

  ASSERT_THAT(store_.Install(2, 9), IsOk());
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{9, 9}));
}

TEST_F(RowBlockOrdersTest, APassThatWasCutTakesNoMorePushes) {
  ASSERT_THAT(store_.store->Push(InPass(1, 4)), IsOk());
  ASSERT_THAT(store_.store->Cut(1, 5), IsOk());

  EXPECT_THAT(store_.store->Push(InPass(2, 4)), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(store_.Refused(ParamRefusal::kOldPass), 1);
  // The repeat of what was applied before, and a pull, change nothing and are answered.
  EXPECT_THAT(store_.store->Push(InPass(1, 4)), IsOk());
  PushRequest pull = InPass(2, 4);
  pull.rows = {};
  EXPECT_THAT(store_.store->Push(pull), IsOk());
  EXPECT_THAT(store_.store->Push(InPass(3, 5)), IsOk());
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{6, 8}));
}

TEST_F(RowBlockOrdersTest, TheSnapshotOfACutIsOfItsMoment) {
  ASSERT_THAT(store_.store->Push(InPass(1, 4)), IsOk());
  ASSERT_THAT(store_.store->Cut(1, 5), IsOk());
  ASSERT_THAT(store_.store->Push(InPass(2, 5)), IsOk());
  ASSERT_THAT(store_.store->Cut(1, 5), IsOk());  // a repeat

  const auto cut = store_.store->Snapshot(1, 5);
  const auto now = store_.store->Snapshot(1, std::nullopt);

  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ((*cut)->first_open_pass, 5);
  EXPECT_EQ(RowOf(**cut, 0, 1), (std::vector<float>{3, 4}));
  ASSERT_THAT(now, IsOk());
  EXPECT_EQ(RowOf(**now, 0, 1), (std::vector<float>{6, 8}));
  EXPECT_THAT(store_.store->Snapshot(1, 6), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(store_.store->Snapshot(0, 5), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(RowBlockOrdersTest, ACutSurvivesTheMachine) {
  ASSERT_THAT(store_.store->Push(InPass(1, 4)), IsOk());
  ASSERT_THAT(store_.store->Cut(1, 5), IsOk());
  ASSERT_THAT(store_.store->Push(InPass(2, 5)), IsOk());
  log_.Crash(0);

  StoreFixture restarted(&log_, 101);

  EXPECT_EQ(restarted.store->first_open_pass(), 5);
  const auto cut = restarted.store->Snapshot(1, 5);
  ASSERT_THAT(cut, IsOk());
  EXPECT_EQ(RowOf(**cut, 0, 1), (std::vector<float>{3, 4}));
}

TEST_F(RowBlockOrdersTest, ACutThatWasNotFinishedIsNotReported) {
  ASSERT_THAT(store_.store->Push(InPass(1, 4)), IsOk());
  FailingPushLog failing(&log_);
  StoreFixture store(&failing, 101);
  failing.fail_sync = true;
  EXPECT_FALSE(store.store->Cut(1, 5).ok());
  log_.Crash(2);  // some of its pieces

  StoreFixture restarted(&log_, 102);
  EXPECT_EQ(restarted.store->first_open_pass(), 0);
  ASSERT_THAT(restarted.store->Cut(1, 5), IsOk());
  EXPECT_THAT(restarted.store->Snapshot(1, 5), IsOk());
}

TEST_F(RowBlockOrdersTest, EarlierCutsGoWhenALaterOneIsStored) {
  ASSERT_THAT(store_.store->Cut(1, 5), IsOk());
  ASSERT_THAT(store_.store->Cut(1, 6), IsOk());
  ASSERT_THAT(store_.store->Snapshot(1, 5), IsOk());
  ASSERT_THAT(store_.store->Snapshot(1, 6), IsOk());

  EXPECT_THAT(store_.store->Snapshot(1, 5), StatusIs(absl::StatusCode::kNotFound));
  StoreFixture restarted(&log_, 101);
  EXPECT_THAT(restarted.store->Snapshot(1, 5), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(restarted.store->Snapshot(1, 6), IsOk());
}

TEST_F(RowBlockOrdersTest, ASessionThatIsOverCannotComeBack) {
  store_.Join(kB);
  EXPECT_THAT(store_.store->joined(), ::testing::UnorderedElementsAre(kA, kB));
  ASSERT_THAT(store_.store->EndSessions({kA}), IsOk());

  EXPECT_THAT(store_.store->joined(), ElementsAre(kB));
  EXPECT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(store_.JoinPageOf(kA), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(store_.Refused(ParamRefusal::kSessionOver), 2);
  StoreFixture restarted(&log_, 101);
  EXPECT_THAT(restarted.JoinPageOf(kA), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(RowBlockOrdersTest, ARestartIsNoticedByTheCursorAndAllRowsAreSent) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  StoreFixture restarted(&log_, 101);
  restarted.cursors = store_.cursors;

  const auto answer = restarted.Push(kA, 2, {{0, 1, {1, 1}}});

  ASSERT_THAT(answer, IsOk());
  EXPECT_EQ(answer->lost_pushes, 0);
  EXPECT_EQ(answer->cursor.incarnation, 101);
  EXPECT_EQ(Rows(answer->rows, TestLayout()).size(), 8);
  EXPECT_EQ(restarted.Row(0, 1), (std::vector<float>{4, 5}));
}

TEST_F(RowBlockOrdersTest, PushesThatTheMachineLostAreCounted) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  ASSERT_THAT(store_.Push(kA, 2, {{0, 1, {3, 4}}}), IsOk());
  log_.Crash(1);
  StoreFixture restarted(&log_, 101);
  restarted.cursors = store_.cursors;

  const auto answer = restarted.Push(kA, 3, {{0, 1, {1, 1}}});

  ASSERT_THAT(answer, IsOk());
  EXPECT_TRUE(answer->applied);
  EXPECT_EQ(answer->lost_pushes, 1);
  EXPECT_EQ(restarted.Row(0, 1), (std::vector<float>{4, 5}));
}

TEST_F(RowBlockOrdersTest, ASyncedPushKeepsAllBeforeIt) {
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  PushRequest flush = store_.Request(kA, 2, {});
  flush.sync = true;
  ASSERT_THAT(store_.store->Push(flush), IsOk());
  log_.Crash(0);

  StoreFixture restarted(&log_, 101);
  EXPECT_EQ(restarted.Row(0, 1), (std::vector<float>{3, 4}));
}

TEST_F(RowBlockOrdersTest, AfterAFailedWriteNothingIsAccepted) {
  FailingPushLog failing(&log_);
  StoreFixture store(&failing, 101);
  store.cursors = store_.cursors;
  failing.fail_write = true;
  EXPECT_THAT(store.Push(kA, 1, {{0, 1, {3, 4}}}), StatusIs(absl::StatusCode::kResourceExhausted));
  failing.fail_write = false;

  EXPECT_FALSE(store.Push(kA, 1, {{0, 1, {3, 4}}}).ok());
  EXPECT_FALSE(store.JoinPageOf(kA).ok());
  EXPECT_FALSE(store.store->Cut(1, 5).ok());
  EXPECT_FALSE(store.store->failed().ok());
  StoreFixture restarted(&log_, 102);
  EXPECT_EQ(restarted.Row(0, 1), (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace weft
