#include "services/param_server/param_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "tests/param_server/store_fixture.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StoreFixture;
using testing::TestLayout;

constexpr uint64_t kA = 11;

// Keeps encoded snapshots by token.
class FakeBlobs : public SnapshotBlobs {
 public:
  absl::StatusOr<VersionInfo> Store(const StoreSnapshot& order,
                                    const ParamSnapshot& snapshot) override {
    if (full) return absl::ResourceExhaustedError("full");
    std::string bytes;
    EXPECT_THAT(snapshot.Encode([&](std::string_view piece) {
      bytes += piece;
      return absl::OkStatus();
    }),
                IsOk());
    blobs[order.version.token] = bytes;
    return VersionInfo{order.version, {{0, 0, 0, static_cast<int64_t>(bytes.size()), 0, {}}}};
  }
  absl::StatusOr<ParamSnapshot> Read(const VersionInfo& version) override {
    return ParamSnapshot::Decode(blobs[version.version.token]);
  }

  std::map<Token, std::string> blobs;
  std::atomic<bool> full = false;
};

class FakeInitial : public InitialParameters {
 public:
  absl::StatusOr<SharedLayout> Layout() override { return TestLayout(); }
  absl::Status Fill(RowTable* table) override {
    for (int64_t i = 0; i < table->num_rows(); ++i) {
      for (float& f : table->values(i)) f = 1;
    }
    return absl::OkStatus();
  }
};

class ParamOrdersTest : public ::testing::Test {
 protected:
  // Gives orders and waits for their results, which it reports.
  std::vector<OrderResult> Do(std::vector<NumberedOrder> orders) {
    StoreInstructions instructions;
    instructions.orders = std::move(orders);
    EXPECT_THAT(orders_.Take("run", instructions), IsOk());
    while (orders_.Results().size() < instructions.orders.size()) std::this_thread::yield();
    std::vector<OrderResult> results = orders_.Results();
    orders_.Reported(results.size());
    return results;
  }
  static VersionInfo Snapshot(Token token) { return {{{kSnapshotType, 0}, token}, {}}; }

  MemoryPushLog log_;
  StoreFixture store_{&log_};
  FakeBlobs blobs_;
  FakeInitial initial_;
  std::atomic<int> changed_ = 0;
  ParamOrders orders_{store_.store.get(), &blobs_, &initial_, [this] { ++changed_; }};
};

TEST_F(ParamOrdersTest, ANewServerReportsNothingAndIsInitialisedByOrder) {
  EXPECT_EQ(orders_.State().generation, 0);

  const auto results = Do({{1, RestoreParameters{1, {}, 0, 0, 1}}});

  ASSERT_EQ(results.size(), 1);
  EXPECT_THAT(results[0].status, IsOk());
  EXPECT_EQ(results[0].order_id, 1);
  EXPECT_EQ(orders_.State().generation, 1);
  EXPECT_EQ(store_.Row(0, 2), (std::vector<float>{1, 1}));
}

TEST_F(ParamOrdersTest, AnOrderThatIsListedAgainIsDoneOnce) {
  StoreInstructions instructions;
  instructions.orders = {{1, RestoreParameters{1, {}, 0, 0, 1}}};
  ASSERT_THAT(orders_.Take("run", instructions), IsOk());
  ASSERT_THAT(orders_.Take("run", instructions), IsOk());
  while (orders_.Results().empty()) std::this_thread::yield();
  ASSERT_THAT(orders_.Take("run", instructions), IsOk());
  Do({{2, CutParameters{1, 4}}});

  EXPECT_THAT(orders_.Results(), IsEmpty());
  while (changed_ < 2) std::this_thread::yield();  // said after the result is there
  EXPECT_EQ(changed_, 2);
}

TEST_F(ParamOrdersTest, ACutIsStoredAndRestored) {
  Do({{1, RestoreParameters{1, {}, 0, 0, 1}}});
  store_.Join(kA);
  ASSERT_THAT(store_.Push(kA, 1, {{0, 1, {3, 4}}}), IsOk());
  const auto cut = Do({{2, CutParameters{1, 4}}});
  EXPECT_THAT(cut[0].status, IsOk());
  EXPECT_EQ(orders_.State().first_open_pass, 4);
  EXPECT_THAT(orders_.State().joined, ElementsAre(kA));
  PushRequest next = store_.Request(kA, 2, {{0, 1, {1, 1}}});
  next.pass = 4;
  ASSERT_THAT(store_.store->Push(next), IsOk());

  const auto stored = Do({{3, StoreSnapshot{{{kSnapshotType, 0}, 77}, 4, {}, 1}}});
  ASSERT_THAT(stored[0].status, IsOk());
  EXPECT_EQ(stored[0].stored->version.token, 77);
  const auto restored = Do({{4, RestoreParameters{2, {Snapshot(77)}, 4, 0, 1}}});

  EXPECT_THAT(restored[0].status, IsOk());
  EXPECT_EQ(store_.Row(0, 1), (std::vector<float>{4, 5}));
  EXPECT_EQ(orders_.State().generation, 2);
  EXPECT_EQ(orders_.State().first_open_pass, 4);
  EXPECT_THAT(orders_.State().joined, IsEmpty());
}

TEST_F(ParamOrdersTest, WhatFailsIsReportedAndCanBeOrderedAgain) {
  Do({{1, RestoreParameters{1, {}, 0, 0, 1}}});
  blobs_.full = true;
  const StoreSnapshot order{{{kSnapshotType, 0}, 77}, std::nullopt, {}, 1};
  EXPECT_EQ(Do({{2, order}})[0].status.code(), absl::StatusCode::kResourceExhausted);
  blobs_.full = false;
  EXPECT_THAT(Do({{3, order}})[0].status, IsOk());
  // A snapshot that is not there.
  EXPECT_EQ(Do({{4, RestoreParameters{2, {Snapshot(78)}, 0, 0, 1}}})[0].status.code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(orders_.State().generation, 0);
  EXPECT_THAT(Do({{5, RestoreParameters{2, {Snapshot(77)}, 0, 0, 1}}})[0].status, IsOk());
  EXPECT_EQ(Do({{6, CopyShard{}}})[0].status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Do({{7, RestoreParameters{3, {}, 0, 1, 1}}})[0].status.code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ParamOrdersTest, EndedSessionsAreRefusedAtOnce) {
  Do({{1, RestoreParameters{1, {}, 0, 0, 1}}});
  store_.Join(kA);
  StoreInstructions instructions;
  instructions.ended_sessions = {kA};
  ASSERT_THAT(orders_.Take("run", instructions), IsOk());

  EXPECT_TRUE(absl::IsAborted(store_.Push(kA, 1, {}).status()));
}

}  // namespace
}  // namespace weft
