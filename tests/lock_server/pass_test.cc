// Passes: their sequence, their edges, and what may change between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "services/lock_server/pass_accounting.h"
#include "services/lock_server/pass_sequence.h"
#include "services/lock_server/run_shape.h"
#include "services/lock_server/version_table.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::StatusIs;

using Paths = std::vector<std::string>;

PassPosition At(int epoch, int path, int chunk, int chunks) {
  return {100, epoch, path, chunk, chunks};
}

TEST(PassSequenceTest, ChunksThenPathsThenEpochs) {
  PassPosition position;
  position.num_edge_chunks = 2;
  std::vector<std::vector<int>> seen;
  for (int i = 0; i < 5; ++i) {
    seen.push_back({position.epoch, position.edge_path, position.edge_chunk});
    EXPECT_EQ(position.pass, i);
    EXPECT_EQ(PositionOfVersion(i, 2, 2), position);
    position = NextPass(position, 2);
  }

  EXPECT_THAT(seen, ElementsAre(std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1},
                                std::vector<int>{0, 1, 0}, std::vector<int>{0, 1, 1},
                                std::vector<int>{1, 0, 0}));
}

TEST(MapPositionTest, WithoutChangesThePositionIsTheSame) {
  const auto mapped = MapPosition(At(3, 1, 2, 4), true, Paths{"a", "b"}, Paths{"a", "b"}, 4);

  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, At(3, 1, 2, 4));
}

TEST(MapPositionTest, AtTheBeginningOfAnEpochEverythingMayChange) {
  const auto mapped = MapPosition(At(3, 0, 0, 4), false, Paths{"a", "b"}, Paths{"c"}, 7);

  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, At(3, 0, 0, 7));
}

TEST(MapPositionTest, TheSameShareOfAPathIsDoneWithOtherChunks) {
  const auto mapped = MapPosition(At(3, 0, 2, 4), false, Paths{"a"}, Paths{"a"}, 6);

  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, At(3, 0, 3, 6));
}

TEST(MapPositionTest, AShareThatNoChunkBeginsAtIsRefusedWithBothNumbers) {
  EXPECT_THAT(MapPosition(At(3, 0, 1, 4), false, Paths{"a"}, Paths{"a"}, 6),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("chunk 2 of 4"), HasSubstr("6 chunks"))));
}

TEST(MapPositionTest, WithinAPassTheNumberOfChunksIsFixed) {
  EXPECT_THAT(MapPosition(At(3, 0, 0, 4), true, Paths{"a"}, Paths{"a"}, 8),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("continue with 4")));
}

TEST(MapPositionTest, PathsThatAreDoneInThisEpochCannotChange) {
  EXPECT_THAT(MapPosition(At(3, 1, 0, 1), false, Paths{"a", "b"}, Paths{"b", "a"}, 1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("[a, b]"), HasSubstr("[b, a]"))));
}

TEST(MapPositionTest, PathsThatAreStillToComeMayChange) {
  const auto mapped = MapPosition(At(3, 1, 0, 1), false, Paths{"a", "b"}, Paths{"a", "c", "d"}, 1);

  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, At(3, 1, 0, 1));
}

TEST(MapPositionTest, WhenAllPathsThatAreLeftAreRemovedTheEpochIsOver) {
  const auto mapped = MapPosition(At(3, 1, 0, 1), false, Paths{"a", "b"}, Paths{"a"}, 1);

  ASSERT_THAT(mapped, IsOk());
  EXPECT_EQ(*mapped, At(4, 0, 0, 1));
}

TEST(PassAccountingTest, ABucketsEdgesAreThoseOfTheChunk) {
  const std::vector<int64_t> edges = {10, 0, 1, 2};
  PassPosition position;
  position.num_edge_chunks = 3;
  int64_t sum = 0;
  for (position.edge_chunk = 0; position.edge_chunk < 3; ++position.edge_chunk) {
    const PassAccounting accounting(edges, 2, position);
    sum += accounting.Expected({0, 0});
    EXPECT_EQ(accounting.Expected({0, 1}), 0);
  }

  EXPECT_EQ(sum, 10);
}

TEST(PassAccountingTest, BucketsWithoutEdgesInThisChunkAreEmpty) {
  const std::vector<int64_t> edges = {10, 0, 1, 2};
  PassPosition position;
  position.num_edge_chunks = 2;

  EXPECT_THAT(PassAccounting(edges, 2, position).EmptyBuckets(),
              ElementsAre(Bucket{0, 1}, Bucket{1, 0}));
}

TEST(PassAccountingTest, EveryEdgeIsAccountedFor) {
  const std::vector<int64_t> edges = {10};
  const PassAccounting accounting(edges, 1, {});
  BucketStats stats;
  stats.trained_edges = 8;
  stats.held_out_edges = 2;
  EXPECT_THAT(accounting.Check(stats), IsOk());

  stats.held_out_edges = 3;
  EXPECT_THAT(accounting.Check(stats), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(VersionTableTest, TypesWithOnePartitionAreNotInTheTable) {
  const VersionTable table({1, 2});

  EXPECT_THAT(table.keys(), ElementsAre(PartitionKey{1, 0}, PartitionKey{1, 1}));
  EXPECT_FALSE(table.Has({0, 0}));
  EXPECT_FALSE(table.Has({1, 2}));
  EXPECT_FALSE(table.Has({-1, 0}));
}

TEST(VersionTableTest, AVersionIsDirtyUntilItIsCommitted) {
  VersionTable table({2});
  table.SetCurrent({0, 1}, 5);
  EXPECT_TRUE(table.IsDirty({0, 1}));

  table.CommitAll();

  EXPECT_FALSE(table.IsDirty({0, 1}));
  EXPECT_EQ(table.committed({0, 1}), 5u);
}

TEST(VersionTableTest, RootsAreCurrentAndCommittedVersionsEachOnce) {
  VersionTable table({3});
  table.SetCurrent({0, 0}, 5);
  table.CommitAll();
  table.SetCurrent({0, 0}, 9);
  table.SetCurrent({0, 1}, 7);

  EXPECT_THAT(table.Roots(), ElementsAre(PartitionVersion{{0, 0}, 9}, PartitionVersion{{0, 0}, 5},
                                         PartitionVersion{{0, 1}, 7}));
}

RunShape Shape() {
  RunShape shape;
  shape.entity_types = {{"user", 100, {5, 6}, 2}};
  shape.relations = {{"follows", "user", "user", "none"}};
  return shape;
}

TEST(RunShapeTest, EqualShapesDoNotDiffer) {
  EXPECT_THAT(DescribeChanges(Shape(), Shape()), IsEmpty());
}

TEST(RunShapeTest, EveryChangeIsNamedWithBothValues) {
  RunShape now = Shape();
  now.entity_types[0].dimension = 200;
  now.entity_types[0].counts[1] = 7;
  now.relations[0].operator_name = "diagonal";
  now.global_embeddings = true;

  EXPECT_THAT(DescribeChanges(Shape(), now),
              ElementsAre("entities.user: dimension: was 100, is 200",
                          "entities.user: entities in partition 1: was 6, is 7",
                          "relations[0].operator: was none, is diagonal",
                          "global_emb: was false, is true"));
}

TEST(RunShapeTest, OtherPartitionsAreNamedAlone) {
  RunShape now = Shape();
  now.entity_types[0].num_partitions = 4;
  now.entity_types[0].counts = {1, 2, 3, 4};

  EXPECT_THAT(DescribeChanges(Shape(), now),
              ElementsAre("entities.user.num_partitions: was 2, is 4"));
}

TEST(RunShapeTest, AnotherRelationOrEntityTypeIsNamed) {
  RunShape now = Shape();
  now.entity_types.push_back({"item", 100, {1}, 1});
  now.relations.push_back({"likes", "user", "item", "none"});

  EXPECT_THAT(DescribeChanges(Shape(), now), ElementsAre("entities: was [user], is [user, item]",
                                                         "number of relations: was 1, is 2"));
}

TEST(RunShapeTest, WhatIsNotKnownDoesNotDiffer) {
  RunShape was = Shape();
  was.entity_types[0].counts.clear();
  RunShape now = Shape();
  now.num_dynamic_relations = 7;
  now.entities_digest = 5;

  EXPECT_THAT(DescribeChanges(was, now), IsEmpty());
}

TEST(RunShapeTest, OtherNamesBehindTheSameCountsAreNoticed) {
  RunShape was = Shape();
  was.entities_digest = 4;
  RunShape now = Shape();
  now.entities_digest = 5;

  EXPECT_THAT(DescribeChanges(was, now), ElementsAre(HasSubstr("imported anew")));
}

}  // namespace
}  // namespace weft
