#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "graph/import/bucket_sink.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

class BucketSinkTest : public ::testing::TestWithParam<int> {
 protected:
  // The parameter is max_open_buckets: 16 writes all files at once, 0 sorts first.
  BucketSink::Options Options(int num_lhs, int num_rhs) const {
    BucketSink::Options options;
    options.folder = folder_.path();
    options.spill_folder = folder_.path();
    options.num_lhs_partitions = num_lhs;
    options.num_rhs_partitions = num_rhs;
    options.max_open_buckets = GetParam();
    return options;
  }

  EdgeList Read(Bucket bucket) const {
    const absl::StatusOr<int64_t> count = CountEdges(folder_.path(), bucket);
    EXPECT_THAT(count, IsOk());
    const int64_t limit[] = {std::numeric_limits<int32_t>::max()};
    auto edges = ReadEdges(folder_.path(), bucket, 0, *count,
                           {.num_relations = 1000, .lhs_counts = limit, .rhs_counts = limit});
    EXPECT_THAT(edges, IsOk());
    return *edges;
  }

  testing::TempDir folder_;
};

TEST_P(BucketSinkTest, WritesEachBucketInOrder) {
  const auto sink = BucketSink::Create(Options(2, 3));
  ASSERT_THAT(sink->Add(std::vector<EdgeRecord>{{1, 2, 3, 1}, {4, 5, 6, 1}, {7, 8, 9, 1}},
                        std::vector<uint32_t>{5, 1, 5}),
              IsOk());
  const absl::StatusOr<BucketSink::Result> result = sink->Finish();

  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(result->buckets, ElementsAre(DatasetManifest::BucketCount{{0, 1}, 1},
                                           DatasetManifest::BucketCount{{1, 2}, 2}));
  EXPECT_EQ(result->num_edges, 3);
  const EdgeList edges = Read({1, 2});
  EXPECT_THAT(edges.lhs, ElementsAre(1, 7));
  EXPECT_THAT(edges.rhs, ElementsAre(2, 8));
  EXPECT_THAT(edges.rel, ElementsAre(3, 9));
  EXPECT_THAT(edges.weight, IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(EdgeBucketPath(folder_.path(), {0, 0})));
}

TEST_P(BucketSinkTest, EmptyBucketsGetNoFileUnlessAsked) {
  BucketSink::Options options = Options(2, 2);
  options.write_empty = false;

  const auto sink = BucketSink::Create(options);
  ASSERT_THAT(sink->Add(std::vector<EdgeRecord>{{0, 0, 0, 1}}, std::vector<uint32_t>{3}), IsOk());
  ASSERT_THAT(sink->Finish(), IsOk());

  EXPECT_FALSE(std::filesystem::exists(EdgeBucketPath(folder_.path(), {0, 0})));
  EXPECT_TRUE(std::filesystem::exists(EdgeBucketPath(folder_.path(), {1, 1})));
}

TEST_P(BucketSinkTest, KeepsWeightsExactly) {
  BucketSink::Options options = Options(1, 1);
  options.weighted = true;

  const auto sink = BucketSink::Create(options);
  ASSERT_THAT(sink->Add(std::vector<EdgeRecord>{{0, 1, 0, 0.5f}, {0, 1, 0, 1.9f}, {1, 0, 0, 0.25f}},
                        std::vector<uint32_t>{0, 0, 0}),
              IsOk());
  ASSERT_THAT(sink->Finish(), IsOk());

  EXPECT_THAT(Read({0, 0}).weight, ElementsAre(0.5f, 1.9f, 0.25f));
}

TEST_P(BucketSinkTest, MoreThanAFewEdgesArriveWhole) {
  const auto sink = BucketSink::Create(Options(1, 2));
  std::vector<EdgeRecord> edges;
  std::vector<uint32_t> buckets;
  for (uint32_t i = 0; i < 300'000; ++i) {
    edges.push_back({i, i / 2, i % 7, 1});
    buckets.push_back(i % 3 == 0);
  }
  ASSERT_THAT(sink->Add(edges, buckets), IsOk());
  ASSERT_THAT(sink->Finish(), IsOk());

  const EdgeList third = Read({0, 1});
  ASSERT_EQ(third.size(), 100'000);
  EXPECT_EQ(Read({0, 0}).size(), 200'000);
  for (int i = 0; i < 100'000; ++i) ASSERT_EQ(third.lhs[i], 3 * i);
}

TEST_P(BucketSinkTest, DropsDuplicatesAndKeepsTheFirst) {
  BucketSink::Options options = Options(1, 1);
  options.weighted = true;
  options.drop_duplicates = true;

  const auto sink = BucketSink::Create(options);
  ASSERT_THAT(sink->Add(
                  std::vector<EdgeRecord>{
                      {1, 2, 0, 1}, {2, 1, 0, 2}, {1, 2, 1, 3}, {1, 2, 0, 4}, {2, 1, 0, 5}},
                  std::vector<uint32_t>(5, 0)),
              IsOk());
  const absl::StatusOr<BucketSink::Result> result = sink->Finish();

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->num_edges, 3);
  EXPECT_EQ(result->num_duplicates, 2);
  EXPECT_THAT(Read({0, 0}).weight, ElementsAre(1, 2, 3));
}

TEST_P(BucketSinkTest, DropsDuplicatesOfABucketThatDoesNotFitMemory) {
  BucketSink::Options options = Options(1, 1);
  options.drop_duplicates = true;
  options.memory_bytes = 100'000;  // a hash set of 3,125 edges

  const auto sink = BucketSink::Create(options);
  std::vector<EdgeRecord> edges;
  std::vector<std::tuple<int, int, int>> expected;
  std::set<std::tuple<int, int, int>> seen;
  for (uint32_t i = 0; i < 50'000; ++i) {
    edges.push_back({i * 7919 % 150, i * 104'729 % 130, i % 2, 1});
    const std::tuple<int, int, int> edge(edges.back().lhs, edges.back().rhs, edges.back().rel);
    if (seen.insert(edge).second) expected.push_back(edge);
  }
  ASSERT_THAT(sink->Add(edges, std::vector<uint32_t>(edges.size(), 0)), IsOk());
  const absl::StatusOr<BucketSink::Result> result = sink->Finish();

  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->num_duplicates, static_cast<int64_t>(edges.size() - expected.size()));
  const EdgeList left = Read({0, 0});
  ASSERT_EQ(left.size(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(std::tuple(left.lhs[i], left.rhs[i], left.rel[i]), expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(OpenAndSorted, BucketSinkTest, ::testing::Values(16, 0));

}  // namespace
}  // namespace weft
