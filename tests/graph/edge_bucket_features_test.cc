// Bucket files of graphs with featurized entity types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/edge_bucket_file.h"
#include "graph/hdf5_file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempDir;

constexpr Bucket kBucket{1, 2};

// Relation 0 connects documents, which are featurized (of 6 features), with entities of which there
// are 10; relation 1 the other way round; relation 2 entities with entities.
const std::vector<int64_t> kLhsCounts = {6, 10, 10};
const std::vector<int64_t> kRhsCounts = {10, 6, 10};
const std::vector<uint8_t> kLhsFeaturized = {1, 0, 0};
const std::vector<uint8_t> kRhsFeaturized = {0, 1, 0};
const EdgeLimits kNoFeatures{3, kRhsCounts, kRhsCounts};
const EdgeLimits kFeatureLimits{3, kLhsCounts, kRhsCounts, kLhsFeaturized, kRhsFeaturized};

FeatureBags Bags(const std::vector<std::vector<EntityOffset>>& lists) {
  FeatureBags bags;
  for (const std::vector<EntityOffset>& list : lists) bags.Append(list);
  return bags;
}

void WriteBucket(const TempDir& dir, const EdgeList& edges) {
  auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir.path(), kBucket), edges.weighted());
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Append(edges), IsOk());
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

EdgeList MakeFeaturizedEdges() {
  EdgeList edges;
  edges.lhs = {-1, 9, 8, -1};
  edges.rhs = {3, -1, 4, 0};
  edges.rel = {0, 1, 2, 0};
  edges.features[0] = Bags({{5, 0, 5}, {}, {}, {}});
  edges.features[1] = Bags({{}, {1, 2}, {}, {}});
  return edges;
}

// As another program could write it: relation 0 only, the features of two documents.
void WriteFeatures(const TempDir& dir, const std::vector<int64_t>& offsets,
                   const std::vector<int64_t>& features, const std::vector<int64_t>& lhs = {-1, -1},
                   const std::vector<int64_t>& rel = {0, 0}) {
  auto writer = Hdf5Writer::Create(EdgeBucketPath(dir.path(), kBucket));
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->IntAttribute("/", "format_version", 1), IsOk());
  const std::vector<int64_t> rhs(rel.size(), 1);
  for (const auto& [name, column] : {std::pair("lhs", &lhs),
                                     {"rhs", &rhs},
                                     {"rel", &rel},
                                     {"lhsd_offsets", &offsets},
                                     {"lhsd_data", &features}}) {
    ASSERT_THAT(writer->CreateAppendable(name, /*is_float=*/false), IsOk());
    ASSERT_THAT(writer->Append(name, std::span<const int64_t>(*column)), IsOk());
  }
  ASSERT_THAT(writer->Finish(), IsOk());
}

TEST(EdgeBucketFeaturesTest, FeaturesComeBackAsWrittenFromAnyRow) {
  const TempDir dir;
  const EdgeList edges = MakeFeaturizedEdges();
  WriteBucket(dir, edges);

  for (int64_t begin = 0; begin < edges.size(); ++begin) {
    for (int64_t end = begin + 1; end <= edges.size(); ++end) {
      const auto read = ReadEdges(dir.path(), kBucket, begin, end, kFeatureLimits);
      ASSERT_THAT(read, IsOk());
      EXPECT_EQ(read->lhs, std::vector(edges.lhs.begin() + begin, edges.lhs.begin() + end));
      for (const Side side : kSides) {
        const FeatureBags& bags = read->features[static_cast<int>(side)];
        ASSERT_EQ(bags.size(), end - begin);
        for (int64_t i = begin; i < end; ++i) {
          EXPECT_THAT(bags[i - begin], ElementsAreArray(edges.features[static_cast<int>(side)][i]));
        }
      }
    }
  }
}

TEST(EdgeBucketFeaturesTest, AppendsContinueTheOffsets) {
  const TempDir dir;
  const EdgeList edges = MakeFeaturizedEdges();
  auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir.path(), kBucket), false);
  ASSERT_THAT(writer, IsOk());
  // More than one block of 64 Ki edges.
  constexpr int kTimes = 20'000;
  for (int i = 0; i < kTimes; ++i) ASSERT_THAT((*writer)->Append(edges), IsOk());
  ASSERT_THAT((*writer)->Finish(), IsOk());

  const auto read = ReadEdges(dir.path(), kBucket, 0, 4 * kTimes, kFeatureLimits);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->features[0].size(), 4 * kTimes);
  for (int64_t i = 0; i < read->size(); ++i) {
    for (int side = 0; side < 2; ++side) {
      ASSERT_THAT(read->features[side][i], ElementsAreArray(edges.features[side][i % 4]));
    }
  }
}

TEST(EdgeBucketFeaturesTest, ReadsWhatPyTorchBigGraphWrote) {
  const std::string folder = WEFT_SOURCE_DIR "/tests/golden/pbg_featurized";

  ASSERT_THAT(CountEdges(folder, {0, 0}), IsOk());
  EXPECT_EQ(*CountEdges(folder, {0, 0}), 6);
  EXPECT_EQ(*CountFeatures(folder, {0, 0}), 7);
  EXPECT_EQ(*CountFeatures(folder, {0, 1}), 0);  // no file
  const auto read = ReadEdges(folder, {0, 0}, 0, 6, kFeatureLimits);
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(read->lhs, ElementsAre(-1, 9, 8, -1, -1, 0));
  EXPECT_THAT(read->rhs, ElementsAre(3, -1, 4, 0, 7, -1));
  EXPECT_THAT(read->rel, ElementsAre(0, 1, 2, 0, 0, 1));
  EXPECT_EQ(read->features[0], Bags({{5, 0, 5}, {}, {}, {}, {4}, {}}));
  EXPECT_EQ(read->features[1], Bags({{}, {1, 2}, {}, {}, {}, {3}}));
}

TEST(EdgeBucketFeaturesTest, EntitiesWithoutFeaturesMayHaveNoDataSet) {
  const TempDir dir;
  auto writer = Hdf5Writer::Create(EdgeBucketPath(dir.path(), kBucket));
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->IntAttribute("/", "format_version", 1), IsOk());
  for (const auto& [name, id] : {std::pair("lhs", -1), {"rhs", 3}, {"rel", 0}}) {
    ASSERT_THAT(writer->CreateAppendable(name, /*is_float=*/false), IsOk());
    const std::vector<int64_t> column(2, id);
    ASSERT_THAT(writer->Append(name, std::span<const int64_t>(column)), IsOk());
  }
  ASSERT_THAT(writer->Finish(), IsOk());

  const auto read = ReadEdges(dir.path(), kBucket, 0, 2, kFeatureLimits);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->features[0], Bags({{}, {}}));
}

TEST(EdgeBucketFeaturesTest, OffsetsThatAreNoneAreRefused) {
  const TempDir dir;
  struct Case {
    std::vector<int64_t> offsets;
    const char* message;
  };
  for (const Case& c : {Case{{1, 2, 3}, "lhsd_offsets[0] is 1, must be 0"},
                        Case{{0, 2, 1}, "lhsd_offsets[2] is 1, less than the one before"},
                        Case{{0, -1, 3}, "lhsd_offsets[1] is -1, less than the one before"},
                        Case{{0, 4, 4}, "lhsd_offsets[1] is 4, but lhsd_data has 3"},
                        Case{{0, 1, 2}, "lhsd_offsets[2] is 2, must be the size of lhsd_data, 3"},
                        Case{{0, 3}, "lhsd_offsets has 2 entries, must have 3"},
                        Case{{0, 1, 2, 3}, "lhsd_offsets has 4 entries, must have 3"}}) {
    WriteFeatures(dir, c.offsets, {1, 2, 3});
    EXPECT_THAT(ReadEdges(dir.path(), kBucket, 0, 2, kFeatureLimits),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("edges_1_2.h5"), HasSubstr(c.message))));
  }
}

TEST(EdgeBucketFeaturesTest, FeaturesThatAreNoneAreRefused) {
  const TempDir dir;
  const auto read = [&] { return ReadEdges(dir.path(), kBucket, 0, 2, kFeatureLimits); };
  const auto invalid = absl::StatusCode::kInvalidArgument;

  WriteFeatures(dir, {0, 1, 3}, {5, 0, 6});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("lhsd_data has feature 6 for edge 1, must be 0 "
                                                  "to 5")));
  WriteFeatures(dir, {0, 1, 3}, {5, -1, 0});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("lhsd_data[1] is -1")));
  WriteFeatures(dir, {0, 1, 3}, {5, int64_t{1} << 32, 0});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("lhsd_data[1] is 4294967296")));
}

TEST(EdgeBucketFeaturesTest, AnEntityHasEitherAnOffsetOrFeatures) {
  const TempDir dir;
  const auto read = [&](const EdgeLimits& limits) {
    return ReadEdges(dir.path(), kBucket, 0, 2, limits);
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;

  WriteFeatures(dir, {0, 1, 2}, {5, 0}, /*lhs=*/{-1, 0});
  EXPECT_THAT(read(kFeatureLimits),
              StatusIs(invalid, HasSubstr("lhs[1] is 0, but its entity type is featurized")));
  WriteFeatures(dir, {0, 1, 2}, {5, 0}, /*lhs=*/{-1, 9}, /*rel=*/{0, 2});
  EXPECT_THAT(
      read(kFeatureLimits),
      StatusIs(invalid, HasSubstr("lhs of edge 1 has 1 features, but its entity type is not "
                                  "featurized")));
  WriteFeatures(dir, {0, 1, 2}, {5, 0}, /*lhs=*/{1, 1});
  EXPECT_THAT(read(kNoFeatures),
              StatusIs(invalid, HasSubstr("has features (lhsd_data), but no entity "
                                          "type on its lhs is featurized")));
}

}  // namespace
}  // namespace weft
