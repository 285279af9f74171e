#include "services/param_server/shared_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "services/common/file_util.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

const SnapshotId kId = {"run", 3};

void Fill(FloatBlock* block, float first) {
  for (int64_t i = 0; i < block->size(); ++i) block->data()[i] = first + static_cast<float>(i);
}

// A parameter, a partitioned type and an unpartitioned one; values from `first` on.
SharedState MakeState(float first, int64_t items = 5) {
  SharedState state;
  Parameter& p = state.parameters.Add("relations/0/operator/rhs/real", {2, 3}, 2, 3);
  Fill(&p.values, first);
  Fill(&p.adagrad_sums, first + 100);
  state.parameters.steps = static_cast<int64_t>(first) + 7;
  state.unpartitioned.emplace_back();
  EmbeddingPartition& table = state.unpartitioned.emplace_back(items, 4);
  Fill(&table.embeddings, first + 200);
  Fill(&table.adagrad_sums, first + 300);
  return state;
}

TEST(SharedSnapshotTest, AStateSurvivesTheRoundTrip) {
  const TempDir dir;
  const SharedState state = MakeState(1);
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, state), IsOk());
  SharedState read = MakeState(0);

  ASSERT_THAT(ReadSharedSnapshot(dir.File("s"), kId, &read), IsOk());

  const Parameter& a = state.parameters.all()[0];
  const Parameter& b = read.parameters.all()[0];
  EXPECT_TRUE(std::ranges::equal(a.values.span(), b.values.span()));
  EXPECT_TRUE(std::ranges::equal(a.adagrad_sums.span(), b.adagrad_sums.span()));
  EXPECT_EQ(read.parameters.steps, 8);
  EXPECT_TRUE(std::ranges::equal(state.unpartitioned[1].embeddings.span(),
                                 read.unpartitioned[1].embeddings.span()));
  EXPECT_TRUE(std::ranges::equal(state.unpartitioned[1].adagrad_sums.span(),
                                 read.unpartitioned[1].adagrad_sums.span()));
}

TEST(SharedSnapshotTest, ANewSnapshotReplacesTheOldOne) {
  const TempDir dir;
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, MakeState(1)), IsOk());
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, MakeState(2)), IsOk());
  SharedState read = MakeState(0);

  ASSERT_THAT(ReadSharedSnapshot(dir.File("s"), kId, &read), IsOk());

  EXPECT_EQ(read.parameters.all()[0].values.data()[0], 2);
}

TEST(SharedSnapshotTest, AMissingSnapshotIsNotFound) {
  const TempDir dir;
  SharedState read = MakeState(0);

  EXPECT_THAT(ReadSharedSnapshot(dir.File("s"), kId, &read), StatusIs(absl::StatusCode::kNotFound));
}

TEST(SharedSnapshotTest, ASnapshotOfAnotherRunOrPassIsRefused) {
  const TempDir dir;
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, MakeState(1)), IsOk());
  SharedState read = MakeState(0);

  EXPECT_THAT(ReadSharedSnapshot(dir.File("s"), {"run", 4}, &read),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("pass 3, not of run, pass 4")));
  EXPECT_THAT(ReadSharedSnapshot(dir.File("s"), {"other", 3}, &read),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SharedSnapshotTest, AnotherShapeIsRefusedWithBoth) {
  const TempDir dir;
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, MakeState(1)), IsOk());
  SharedState read = MakeState(0, 6);

  EXPECT_THAT(ReadSharedSnapshot(dir.File("s"), kId, &read),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("5 x 4, not")));
}

TEST(SharedSnapshotTest, EveryDamagedByteAndEveryCutIsNoticed) {
  const TempDir dir;
  ASSERT_THAT(WriteSharedSnapshot(dir.File("s"), kId, MakeState(1)), IsOk());
  const std::string whole = *ReadFile(dir.File("s"));
  for (size_t at = 0; at < whole.size(); at += 5) {
    SCOPED_TRACE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    ASSERT_THAT(WriteFileAtomically(dir.File("damaged"), damaged), IsOk());
    ASSERT_THAT(WriteFileAtomically(dir.File("cut"), whole.substr(0, at)), IsOk());
    SharedState read = MakeState(0);

    EXPECT_FALSE(ReadSharedSnapshot(dir.File("damaged"), kId, &read).ok());
    EXPECT_THAT(ReadSharedSnapshot(dir.File("cut"), kId, &read),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut short")));
  }
}

TEST(SharedSnapshotTest, AFailedWriteLeavesNothingBehind) {
  const TempDir dir;

  EXPECT_FALSE(WriteSharedSnapshot(dir.File("no/such/folder/s"), kId, MakeState(1)).ok());

  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace weft
