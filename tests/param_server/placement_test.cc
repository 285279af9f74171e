#include "services/param_server/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "services/param_server/row_table.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(ParamPlacementTest, TheSameServerInEveryProcess) {
  const ParamPlacement placement(3);
  std::vector<int> servers;
  for (int i = 0; i < 8; ++i) {
    servers.push_back(
        placement.ServerOf(MakeSharedTensor("relations/" + std::to_string(i), 1, 100), 0));
  }
  // Part of the run's data: rows would be looked for elsewhere if it changed.
  EXPECT_THAT(servers, ElementsAre(2, 0, 2, 0, 0, 1, 1, 0));
}

TEST(ParamPlacementTest, EveryRowIsHeldByExactlyOneServer) {
  const auto layout =
      SharedLayout::Make({MakeSharedTensor("a", 1'000'000, 3), MakeSharedTensor("b", 7, 100'000),
                          MakeSharedTensor("c", 1, 5)});
  ASSERT_TRUE(layout.ok());
  const ParamPlacement placement(4);
  std::vector<int64_t> held(layout->num_tensors());
  for (int server = 0; server < 4; ++server) {
    for (const RowRange& range : placement.RangesOf(*layout, server)) {
      const SharedTensor& tensor = layout->tensor(range.tensor);
      EXPECT_EQ(placement.ServerOf(tensor, range.first), server);
      EXPECT_EQ(placement.ServerOf(tensor, range.first + range.count - 1), server);
      held[range.tensor] += range.count;
    }
  }
  for (uint32_t t = 0; t < layout->num_tensors(); ++t) EXPECT_EQ(held[t], layout->tensor(t).rows);
}

TEST(ParamPlacementTest, ALargeTensorIsSpreadOverAllServers) {
  const SharedLayout layout = *SharedLayout::Make({MakeSharedTensor("a", 100'000, 100)});
  const ParamPlacement placement(4);
  for (int server = 0; server < 4; ++server) {
    int64_t rows = 0;
    for (const RowRange& range : placement.RangesOf(layout, server)) rows += range.count;
    EXPECT_GT(rows, 100'000 / 8) << server;
  }
}

TEST(SharedLayoutTest, WideRowsAreCut) {
  const SharedTensor wide = MakeSharedTensor("w", 2, kMaxRowFloats + 10);
  EXPECT_EQ(wide.cols, kMaxRowFloats);
  EXPECT_EQ(wide.rows, 3);
  EXPECT_EQ(wide.RowFloats(0), kMaxRowFloats);
  EXPECT_EQ(wide.RowFloats(2), 20);
}

TEST(SharedLayoutTest, RefusesRepeatedNamesAndSizesThatDoNotFit) {
  const SharedTensor good = MakeSharedTensor("a", 2, 3);
  EXPECT_FALSE(SharedLayout::Make({good, good}).ok());
  SharedTensor bad = good;
  bad.size = 7;
  EXPECT_FALSE(SharedLayout::Make({bad}).ok());
  bad = {"b", int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 62};
  EXPECT_FALSE(SharedLayout::Make({bad}).ok());
}

TEST(SharedLayoutTest, NamesParametersAndTablesWithTheirSums) {
  SharedState state;
  state.parameters.Add("relations/0/operator/rhs/translation", {4}, 1, 4);
  state.unpartitioned.emplace_back();
  state.unpartitioned.emplace_back(10, 4);

  const SharedLayout layout = SharedLayout::Of(state);

  std::vector<std::string> names;
  for (const SharedTensor& t : layout.tensors()) names.push_back(t.name);
  EXPECT_THAT(
      names, ElementsAre("relations/0/operator/rhs/translation",
                         "relations/0/operator/rhs/translation/sums", "tables/1", "tables/1/sums"));
  EXPECT_EQ(layout.tensor(3).cols, 1);
  EXPECT_EQ(LiveGroups(&state).size(), 2);
}

TEST(RowTableTest, FindsTheRowsOfItsRangesAndNoOthers) {
  const SharedLayout layout =
      *SharedLayout::Make({MakeSharedTensor("a", 10, 2), MakeSharedTensor("b", 5, 3)});
  const RowTable table(layout, {{0, 2, 3}, {0, 7, 1}, {1, 4, 1}});

  EXPECT_EQ(table.num_rows(), 5);
  EXPECT_EQ(table.Find(0, 1), -1);
  EXPECT_EQ(table.Find(0, 2), 0);
  EXPECT_EQ(table.Find(0, 4), 2);
  EXPECT_EQ(table.Find(0, 5), -1);
  EXPECT_EQ(table.Find(0, 7), 3);
  EXPECT_EQ(table.Find(1, 4), 4);
  EXPECT_EQ(table.Find(1, 0), -1);
  EXPECT_EQ(table.Find(2, 0), -1);
  EXPECT_EQ(table.NameOf(3).row, 7);
  EXPECT_EQ(table.NameOf(4).tensor, 1);
  EXPECT_EQ(table.values(4).size(), 3);
}

TEST(RowTableTest, NewerRowsComeInVersionOrderEachOnce) {
  const SharedLayout layout = *SharedLayout::Make({MakeSharedTensor("a", 3, 1)});
  RowTable table(layout, {{0, 0, 3}});
  const uint64_t before = table.counter();
  for (int i = 0; i < 5000; ++i) table.Touch(i % 2);  // enough to compact the log

  std::vector<int64_t> newer;
  for (RowTable::Newer it(table, before); !it.done(); it.Next()) newer.push_back(it.index());
  EXPECT_THAT(newer, ElementsAre(0, 1));
  std::vector<int64_t> all;
  for (RowTable::Newer it(table, 0); !it.done(); it.Next()) all.push_back(it.index());
  EXPECT_THAT(all, ElementsAre(2, 0, 1));
}

}  // namespace
}  // namespace weft
