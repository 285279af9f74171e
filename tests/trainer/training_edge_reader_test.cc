#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "services/trainer/batcher.h"
#include "services/trainer/edge_cache.h"
#include "services/trainer/edge_reader.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;
using Bag = std::vector<EntityOffset>;

// Two entity types: users in two partitions of 10 and 20, items in one of 5; relation 0 connects
// users, relation 1 users and items.
class EdgeReaderTest : public ::testing::Test {
 protected:
  EdgeReaderTest() {
    RunConfig& config = task_.config;
    config.entities = {{"user", 2, false, {}}, {"item", 1, false, {}}};
    config.relations = {{.name = "knows", .lhs = 0, .rhs = 0},
                        {.name = "likes", .lhs = 0, .rhs = 1}};
    config.dimension = 4;
    config.edge_paths = {dir_.File("a"), dir_.File("b")};
    config.eval_fraction = 0;
    for (const std::string& path : config.edge_paths) std::filesystem::create_directories(path);
    task_.entity_counts = {{10, 20}, {5}};
    task_.spec = *MakeModelSpec(config, 0);
  }

  void Write(int edge_path, Bucket bucket, const EdgeList& edges) {
    auto writer = EdgeBucketWriter::Create(
        EdgeBucketPath(task_.config.edge_paths[edge_path], bucket), edges.weighted());
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Append(edges), IsOk());
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }

  static EdgeList Ring(int count) {
    EdgeList edges;
    for (int i = 0; i < count; ++i) {
      edges.lhs.push_back(i % 10);
      edges.rhs.push_back(i / 10 % 10);
      edges.rel.push_back(0);
    }
    return edges;
  }

  TempDir dir_;
  TrainingTask task_;
};

TEST_F(EdgeReaderTest, AMissingBucketFileIsEmpty) {
  const auto edges = EdgeReader(task_).Read({}, {0, 1});
  ASSERT_THAT(edges, IsOk());
  EXPECT_EQ(edges->size(), 0);
}

TEST_F(EdgeReaderTest, OneEdgeInThreeChunksIsReadOnce) {
  Write(0, {0, 0}, Ring(1));
  int64_t total = 0;
  for (int chunk = 0; chunk < 3; ++chunk) {
    const auto edges = EdgeReader(task_).Read({.edge_chunk = chunk, .num_edge_chunks = 3}, {0, 0});
    ASSERT_THAT(edges, IsOk());
    total += edges->size();
  }
  EXPECT_EQ(total, 1);
}

TEST_F(EdgeReaderTest, ThePassSaysWhichEdgePath) {
  Write(0, {0, 0}, Ring(3));
  Write(1, {0, 0}, Ring(4));
  EXPECT_EQ(EdgeReader(task_).Read({.edge_path = 0}, {0, 0})->size(), 3);
  EXPECT_EQ(EdgeReader(task_).Read({.edge_path = 1}, {0, 0})->size(), 4);
}

TEST_F(EdgeReaderTest, HeldOutAndTrainedEdgesAreAllEdgesInEveryChunkCount) {
  task_.config.eval_fraction = 0.2;
  Write(0, {0, 0}, Ring(100));
  std::set<std::pair<int, int>> held_out_of_whole;
  for (const int chunks : {1, 3}) {
    std::multiset<std::pair<int, int>> all;
    std::set<std::pair<int, int>> held_out;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const auto edges =
          EdgeReader(task_).Read({.edge_chunk = chunk, .num_edge_chunks = chunks}, {0, 0});
      ASSERT_THAT(edges, IsOk());
      for (const GroupedEdges* part : {&edges->train, &edges->held_out}) {
        for (int64_t i = 0; i < part->size(); ++i) {
          const Edge edge = part->edges[i];
          all.emplace(edge.lhs, edge.rhs);
          if (part == &edges->held_out) {
            held_out.emplace(edge.lhs, edge.rhs);
          }
        }
      }
    }
    EXPECT_EQ(all.size(), 100u);
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), 100u);  // in one of the sets, not in both
    EXPECT_EQ(held_out.size(), 20u);
    if (chunks == 1) held_out_of_whole = held_out;
    EXPECT_EQ(held_out, held_out_of_whole);
  }
}

TEST_F(EdgeReaderTest, WeightsFollowTheirEdges) {
  EdgeList edges = Ring(4);
  edges.weight = {0.5f, 1.9f, 0.25f, 3.0f};
  Write(0, {0, 0}, edges);
  const auto read = EdgeReader(task_).Read({}, {0, 0});
  ASSERT_THAT(read, IsOk());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read->train.edges[i].weight, edges.weight[i]);
}

TEST_F(EdgeReaderTest, IdsAreCheckedAgainstThePartitionsOfTheBucket) {
  EdgeList edges;
  edges.lhs = {9, 15};
  edges.rhs = {15, 9};
  edges.rel = {0, 0};
  Write(0, {0, 1}, edges);  // users of partition 0 on the left: 10
  EXPECT_THAT(EdgeReader(task_).Read({}, {0, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("edges_0_1.h5"), HasSubstr("lhs[1] is 15"))));
}

TEST_F(EdgeReaderTest, IdsAreCheckedByRelation) {
  EdgeList edges;
  edges.lhs = {0, 0};
  edges.rhs = {5, 5};
  edges.rel = {0, 1};
  Write(0, {0, 0}, edges);  // 5 is a user, but not an item
  EXPECT_THAT(EdgeReader(task_).Read({}, {0, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rhs[1] is 5")));
}

TEST_F(EdgeReaderTest, UnknownRelationsAreRefused) {
  EdgeList edges;
  edges.lhs = {0};
  edges.rhs = {0};
  edges.rel = {2};
  Write(0, {0, 0}, edges);
  EXPECT_THAT(EdgeReader(task_).Read({}, {0, 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rel[0] is 2")));
}

// Items become featurized: relation 1 has bags of 5 features on the right.
TEST_F(EdgeReaderTest, FeaturesFollowTheirEdgesIntoBothSets) {
  task_.config.entities[1].featurized = true;
  task_.config.eval_fraction = 0.2;
  task_.spec = *MakeModelSpec(task_.config, 0);
  EdgeList edges;
  for (int i = 0; i < 100; ++i) {
    const bool likes = i % 3 == 0;
    edges.lhs.push_back(i % 10);
    edges.rhs.push_back(likes ? EdgeList::kFeaturized : i / 10);
    edges.rel.push_back(likes ? 1 : 0);
    std::vector<EntityOffset> bag;
    if (likes) bag.assign(static_cast<size_t>(i % 4), i / 10 % 5);
    edges.features[1].Append(bag);
  }
  Write(0, {0, 0}, edges);

  const auto read = EdgeReader(task_).Read({}, {0, 0});
  ASSERT_THAT(read, IsOk());

  std::multiset<std::vector<int>> expected;
  std::multiset<std::vector<int>> found;
  for (int i = 0; i < 100; ++i) {
    std::vector<int> edge = {edges.rel[i], edges.lhs[i]};
    if (edges.rel[i] == 0) edge.push_back(edges.rhs[i]);
    for (const EntityOffset feature : edges.features[1][i]) edge.push_back(feature);
    expected.insert(edge);
  }
  for (const GroupedEdges* part : {&read->train, &read->held_out}) {
    ASSERT_EQ(part->groups.size(), 2u);
    BatchColumns columns(100);
    const Batcher batcher = Batcher::InOrder(*part, 7);
    for (int64_t b = 0; b < batcher.num_batches(); ++b) {
      batcher.Gather(b, &columns);
      const EdgeBatch& batch = columns.batch();
      EXPECT_EQ(batch.lhs_bags, nullptr);
      EXPECT_EQ(batch.rhs_bags != nullptr, batch.rel[0] == 1);
      for (int64_t i = 0; i < batch.size(); ++i) {
        std::vector<int> edge = {batch.rel[i], batch.lhs[i]};
        if (batch.rhs_bags == nullptr) {
          edge.push_back(batch.rhs[i]);
        } else {
          for (const EntityOffset feature : (*batch.rhs_bags)[batch.rhs[i]]) {
            edge.push_back(feature);
          }
        }
        found.insert(edge);
      }
    }
  }
  EXPECT_EQ(found, expected);
  EXPECT_GT(read->bytes(), read->train.edges.bytes() + read->held_out.edges.bytes());
}

// Users become featurized: ids of features are those of the bucket's partitions, of 10 and 20.
TEST_F(EdgeReaderTest, FeaturesAreCheckedAgainstThePartitionsOfTheBucket) {
  task_.config.entities[0].featurized = true;
  task_.spec = *MakeModelSpec(task_.config, 0);
  EdgeList edges;
  edges.lhs = edges.rhs = {EdgeList::kFeaturized};
  edges.rel = {0};
  edges.features[0].Append(Bag{9, 3});
  edges.features[1].Append(Bag{19});
  Write(0, {0, 1}, edges);
  Write(0, {1, 0}, edges);

  const auto read = EdgeReader(task_).Read({}, {0, 1});
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->train.bags[0], edges.features[0]);
  EXPECT_EQ(read->train.bags[1], edges.features[1]);
  EXPECT_THAT(
      EdgeReader(task_).Read({}, {1, 0}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("edges_1_0.h5"), HasSubstr("rhsd_data has feature 19 for edge 0"),
                     HasSubstr("must be 0 to 9 (the features of its right-hand partition)"))));
}

class EdgeCacheTest : public EdgeReaderTest {};

TEST_F(EdgeCacheTest, TheSameEdgesOfAnotherPassAreNotReadAgain) {
  Write(0, {0, 0}, Ring(5));
  const EdgeReader reader(task_);
  EdgeCache cache(reader, true);
  ASSERT_THAT(cache.Get({.pass = 0}, {0, 0}), IsOk());
  Write(0, {0, 0}, Ring(6));  // would be seen
  const auto again = cache.Get({.pass = 1, .epoch = 1}, {0, 0});
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ((*again)->size(), 5);
}

TEST_F(EdgeCacheTest, ReadsAheadWhatWasAsked) {
  Write(0, {0, 0}, Ring(5));
  Write(0, {0, 1}, Ring(6));
  Write(0, {1, 0}, Ring(7));
  const EdgeReader reader(task_);
  for (const bool prefetch : {true, false}) {
    EdgeCache cache(reader, prefetch);
    EXPECT_EQ((*cache.Get({}, {0, 0}))->size(), 5);
    cache.Prefetch({}, {0, 1});
    EXPECT_EQ((*cache.Get({}, {0, 1}))->size(), 6);
    cache.Prefetch({}, {0, 0});
    EXPECT_EQ((*cache.Get({}, {1, 0}))->size(), 7);  // not what was guessed
  }
}

TEST_F(EdgeCacheTest, AnErrorAheadIsToldWhenTheEdgesAreNeeded) {
  Write(0, {0, 0}, Ring(5));
  EdgeList bad;
  bad.lhs = {10};
  bad.rhs = {0};
  bad.rel = {0};
  Write(0, {0, 1}, bad);
  const EdgeReader reader(task_);
  EdgeCache cache(reader, true);
  ASSERT_THAT(cache.Get({}, {0, 0}), IsOk());
  cache.Prefetch({}, {0, 1});
  EXPECT_THAT(cache.Get({}, {0, 0}), IsOk());
  EXPECT_THAT(cache.Get({}, {0, 1}), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace weft
