#include "graph/edge_bucket_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "graph/hdf5_file.h"
#include "services/common/file_util.h"
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

constexpr Bucket kBucket{1, 2};
const std::vector<int64_t> kCounts = {10};
const EdgeLimits kLimits{.num_relations = 3, .lhs_counts = kCounts, .rhs_counts = kCounts};

EdgeList MakeEdges(bool weighted) {
  EdgeList edges;
  edges.lhs = {0, 1, 9};
  edges.rhs = {3, 4, 5};
  edges.rel = {2, 0, 1};
  if (weighted) edges.weight = {0.5f, 1.9f, 0};
  return edges;
}

void WriteBucket(const TempDir& dir, const EdgeList& edges) {
  auto writer = EdgeBucketWriter::Create(EdgeBucketPath(dir.path(), kBucket), edges.weighted());
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Append(edges), IsOk());
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

// A bucket as another program could write it.
void WriteColumns(const TempDir& dir, const std::vector<int64_t>& lhs,
                  const std::vector<int64_t>& rhs, const std::vector<int64_t>& rel,
                  const std::vector<int64_t>& int_weights = {}) {
  auto writer = Hdf5Writer::Create(EdgeBucketPath(dir.path(), kBucket));
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(writer->IntAttribute("/", "format_version", 1), IsOk());
  for (const auto& [name, column] :
       {std::pair("lhs", &lhs), {"rhs", &rhs}, {"rel", &rel}, {"weight", &int_weights}}) {
    if (column->empty()) continue;
    ASSERT_THAT(writer->CreateAppendable(name, /*is_float=*/false), IsOk());
    ASSERT_THAT(writer->Append(name, std::span<const int64_t>(*column)), IsOk());
  }
  ASSERT_THAT(writer->Finish(), IsOk());
}

TEST(EdgeBucketFileTest, EdgesComeBackAsWritten) {
  const TempDir dir;
  WriteBucket(dir, MakeEdges(/*weighted=*/false));

  EXPECT_THAT(CountEdges(dir.path(), kBucket), IsOk());
  EXPECT_EQ(*CountEdges(dir.path(), kBucket), 3);
  auto edges = ReadEdges(dir.path(), kBucket, 0, 3, kLimits);
  ASSERT_THAT(edges, IsOk());
  EXPECT_THAT(edges->lhs, ElementsAre(0, 1, 9));
  EXPECT_THAT(edges->rhs, ElementsAre(3, 4, 5));
  EXPECT_THAT(edges->rel, ElementsAre(2, 0, 1));
  EXPECT_FALSE(edges->weighted());
}

TEST(EdgeBucketFileTest, FractionalWeightsComeBackExactly) {
  const TempDir dir;
  WriteBucket(dir, MakeEdges(/*weighted=*/true));

  auto edges = ReadEdges(dir.path(), kBucket, 1, 3, kLimits);
  ASSERT_THAT(edges, IsOk());
  EXPECT_THAT(edges->lhs, ElementsAre(1, 9));
  EXPECT_THAT(edges->weight, ElementsAre(1.9f, 0.0f));
}

TEST(EdgeBucketFileTest, IntegerWeightsAreRead) {
  const TempDir dir;
  WriteColumns(dir, {1, 2}, {3, 4}, {0, 0}, {7, 8});

  auto edges = ReadEdges(dir.path(), kBucket, 0, 2, kLimits);
  ASSERT_THAT(edges, IsOk());
  EXPECT_THAT(edges->weight, ElementsAre(7.0f, 8.0f));
}

TEST(EdgeBucketFileTest, AMissingFileIsAnEmptyBucket) {
  const TempDir dir;

  ASSERT_THAT(CountEdges(dir.path(), kBucket), IsOk());
  EXPECT_EQ(*CountEdges(dir.path(), kBucket), 0);
  auto edges = ReadEdges(dir.path(), kBucket, 0, 0, kLimits);
  ASSERT_THAT(edges, IsOk());
  EXPECT_EQ(edges->size(), 0);
}

TEST(EdgeBucketFileTest, BucketsLongerThanOneBlockComeBackFromAnyRow) {
  const TempDir dir;
  EdgeList edges;
  for (int32_t i = 0; i < 200'000; ++i) {
    edges.lhs.push_back(i % 10);
    edges.rhs.push_back((i / 10) % 10);
    edges.rel.push_back(i % 3);
  }
  WriteBucket(dir, edges);

  auto read = ReadEdges(dir.path(), kBucket, 65'000, 199'999, kLimits);
  ASSERT_THAT(read, IsOk());
  ASSERT_EQ(read->size(), 134'999);
  for (size_t i = 0; i < read->lhs.size(); ++i) {
    ASSERT_EQ(read->lhs[i], edges.lhs[i + 65'000]);
    ASSERT_EQ(read->rhs[i], edges.rhs[i + 65'000]);
    ASSERT_EQ(read->rel[i], edges.rel[i + 65'000]);
  }
}

TEST(EdgeBucketFileTest, IdsOutOfRangeAreRefusedWithBucketAndRow) {
  const TempDir dir;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  auto read = [&] { return ReadEdges(dir.path(), kBucket, 0, 2, kLimits); };

  WriteColumns(dir, {1, 10}, {3, 4}, {0, 0});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("edges_1_2.h5: lhs[1] is 10, must be 0 to 9")));
  WriteColumns(dir, {1, 2}, {-1, 4}, {0, 0});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("edges_1_2.h5: rhs[0] is -1, must be 0 to 9")));
  WriteColumns(dir, {1, 2}, {3, 4}, {0, 3});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("edges_1_2.h5: rel[1] is 3, must be 0 to 2")));
  WriteColumns(dir, {1, 2}, {3, 4}, {0, int64_t{1} << 32});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("rel[1] is 4294967296")));
  WriteColumns(dir, {1, (int64_t{1} << 32) + 1}, {3, 4}, {0, 0});
  EXPECT_THAT(read(), StatusIs(invalid, HasSubstr("lhs[1] is 4294967297")));
}

TEST(EdgeBucketFileTest, LimitsAreThoseOfTheEdgesRelation) {
  const TempDir dir;
  const std::vector<int64_t> lhs_counts = {2, 5};
  const std::vector<int64_t> rhs_counts = {9, 1};
  const EdgeLimits limits{2, lhs_counts, rhs_counts};

  WriteColumns(dir, {1, 4}, {8, 0}, {0, 1});
  EXPECT_THAT(ReadEdges(dir.path(), kBucket, 0, 2, limits), IsOk());
  WriteColumns(dir, {1, 4}, {8, 1}, {0, 1});
  EXPECT_THAT(ReadEdges(dir.path(), kBucket, 0, 2, limits),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rhs[1] is 1")));
}

TEST(EdgeBucketFileTest, ColumnsOfDifferentLengthAreRefused) {
  const TempDir dir;
  WriteColumns(dir, {1}, {3, 4}, {0, 0});

  EXPECT_THAT(CountEdges(dir.path(), kBucket),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("data set lhs has 1 edges, but rel has 2")));
}

TEST(EdgeBucketFileTest, AMissingColumnIsNotAnEmptyBucket) {
  const TempDir dir;
  WriteColumns(dir, {1, 2}, {3, 4}, {});

  EXPECT_THAT(CountEdges(dir.path(), kBucket),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has no data set rel")));
}

TEST(EdgeBucketFileTest, AColumnOfAnotherTypeIsRefused) {
  const TempDir dir;
  auto file = Hdf5Writer::Create(EdgeBucketPath(dir.path(), kBucket));
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->IntAttribute("/", "format_version", 1), IsOk());
  const std::vector<int64_t> shape = {2};
  ASSERT_THAT(file->Write("lhs", shape, std::vector<float>{1, 2}), IsOk());
  for (const char* column : {"rhs", "rel"}) {
    ASSERT_THAT(file->CreateAppendable(column, /*is_float=*/false), IsOk());
    ASSERT_THAT(file->Append(column, std::span<const int64_t>(std::vector<int64_t>{0, 1})), IsOk());
  }
  ASSERT_THAT(file->Finish(), IsOk());

  EXPECT_THAT(ReadEdges(dir.path(), kBucket, 0, 2, kLimits).status().message(),
              AllOf(HasSubstr("edges_1_2.h5"), HasSubstr("data set lhs")));
}

TEST(EdgeBucketFileTest, AFileWithoutItsVersionIsRefused) {
  const TempDir dir;
  auto file = Hdf5Writer::Create(EdgeBucketPath(dir.path(), kBucket));
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT(file->Finish(), IsOk());

  EXPECT_THAT(CountEdges(dir.path(), kBucket),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("edges_1_2.h5"), HasSubstr("format_version"))));
}

TEST(EdgeBucketFileTest, WeightsThatAreNotWeightsAreRefused) {
  const TempDir dir;
  EdgeList edges = MakeEdges(/*weighted=*/true);
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    edges.weight[1] = bad;
    WriteBucket(dir, edges);
    EXPECT_THAT(ReadEdges(dir.path(), kBucket, 0, 3, kLimits),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weight[1]")));
  }
}

TEST(EdgeBucketFileTest, ADamagedFileIsDataLoss) {
  const TempDir dir;
  WriteBucket(dir, MakeEdges(/*weighted=*/false));
  const std::string path = EdgeBucketPath(dir.path(), kBucket);
  const std::string whole = *ReadFile(path);
  ASSERT_THAT(WriteFileAtomically(path, whole.substr(0, whole.size() / 2)), IsOk());

  EXPECT_THAT(CountEdges(dir.path(), kBucket), StatusIs(absl::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace weft
