#include "services/param_server/param_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::StatusIs;

SharedLayout Layout() {
  return *SharedLayout::Make({MakeSharedTensor("a", 2000, 100), MakeSharedTensor("a/sums", 2000, 1),
                              MakeSharedTensor("w", 1, kMaxRowFloats + 7)});
}

// Server `server` of `n`; every float is its place in the whole.
ParamSnapshot MakeSnapshot(int server, int n) {
  ParamSnapshot s;
  s.run_id = "run";
  s.generation = 3;
  s.first_open_pass = 8;
  s.steps = server == 0 ? 42 : 0;
  s.layout = Layout();
  s.ranges = ParamPlacement(n).RangesOf(s.layout, server);
  RowTable table(s.layout, s.ranges);
  for (int64_t i = 0; i < table.num_rows(); ++i) {
    const auto [tensor, row] = table.NameOf(i);
    const auto floats = table.values(i);
    std::iota(floats.begin(), floats.end(),
              static_cast<float>(tensor * 1'000'000 + s.layout.tensor(tensor).RowOffset(row)));
  }
  s.values = FloatBlock(1, table.num_floats());
  std::ranges::copy(table.all(), s.values.data());
  return s;
}

std::string Encode(const ParamSnapshot& s) {
  std::string bytes;
  EXPECT_THAT(s.Encode([&](std::string_view piece) {
    bytes += piece;
    return absl::OkStatus();
  }),
              IsOk());
  EXPECT_EQ(bytes.size(), s.EncodedBytes());
  return bytes;
}

TEST(ParamSnapshotTest, DecodesToWhatWasEncoded) {
  const ParamSnapshot s = MakeSnapshot(0, 2);

  const auto decoded = ParamSnapshot::Decode(Encode(s));

  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->run_id, "run");
  EXPECT_EQ(decoded->generation, 3);
  EXPECT_EQ(decoded->first_open_pass, 8);
  EXPECT_EQ(decoded->steps, 42);
  EXPECT_EQ(decoded->ranges, s.ranges);
  EXPECT_EQ(decoded->layout.hash(), s.layout.hash());
  EXPECT_TRUE(std::equal(s.values.span().begin(), s.values.span().end(), decoded->values.data()));
}

TEST(ParamSnapshotTest, AnyDamageIsNoticed) {
  const std::string bytes = Encode(MakeSnapshot(1, 2));
  for (const size_t at : {size_t{0}, size_t{5}, size_t{40}, bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THAT(ParamSnapshot::Decode(damaged), StatusIs(absl::StatusCode::kDataLoss)) << at;
  }
  for (const size_t size : {size_t{0}, size_t{4}, size_t{11}, bytes.size() - 1}) {
    EXPECT_THAT(ParamSnapshot::Decode(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss))
        << size;
  }
}

TEST(SnapshotRestoreTest, AnotherNumberOfServersTakesOverAllRows) {
  const std::vector<ParamSnapshot> whole = [] {
    std::vector<ParamSnapshot> parts;
    for (int i = 0; i < 3; ++i) parts.push_back(MakeSnapshot(i, 3));
    return parts;
  }();
  for (int server = 0; server < 2; ++server) {
    const ParamSnapshot expected = MakeSnapshot(server, 2);
    RowTable table(expected.layout, expected.ranges);
    SnapshotRestore restore(&table);
    for (const ParamSnapshot& part : whole) ASSERT_THAT(restore.Add(part), IsOk());

    ASSERT_THAT(restore.Finish(), IsOk());
    EXPECT_EQ(restore.steps(), 42);
    EXPECT_TRUE(std::equal(table.all().begin(), table.all().end(), expected.values.data()));
  }
}

TEST(SnapshotRestoreTest, AMissingSnapshotIsNoticed) {
  RowTable table(Layout(), ParamPlacement(1).RangesOf(Layout(), 0));
  SnapshotRestore restore(&table);
  ASSERT_THAT(restore.Add(MakeSnapshot(0, 2)), IsOk());

  EXPECT_THAT(restore.Finish(), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(SnapshotRestoreTest, RefusesTheParametersOfAnotherConfiguration) {
  const SharedLayout other = *SharedLayout::Make({MakeSharedTensor("b", 1, 1)});
  RowTable table(other, ParamPlacement(1).RangesOf(other, 0));
  SnapshotRestore restore(&table);

  EXPECT_THAT(restore.Add(MakeSnapshot(0, 1)), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
