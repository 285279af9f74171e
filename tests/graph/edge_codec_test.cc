#include "graph/edge_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::StatusIs;

EdgeList Two(bool weighted) {
  EdgeList edges;
  edges.lhs = {1, 2147483646};
  edges.rhs = {0, 3};
  edges.rel = {7, 0};
  if (weighted) edges.weight = {0.5f, 0};
  return edges;
}

TEST(EdgeCodecTest, GivesBackWhatWasEncoded) {
  for (const bool weighted : {false, true}) {
    const EdgeList edges = Two(weighted);
    const std::string bytes = EncodeEdges(edges);

    const auto decoded = DecodeEdges(bytes, 2);

    EXPECT_EQ(static_cast<int64_t>(bytes.size()), 2 * EdgeBytes(weighted));
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->lhs, edges.lhs);
    EXPECT_EQ(decoded->rhs, edges.rhs);
    EXPECT_EQ(decoded->rel, edges.rel);
    EXPECT_EQ(decoded->weight, edges.weight);
  }
}

TEST(EdgeCodecTest, AnEdgeIsItsIdsInOrderLittleEndian) {
  EdgeList edges;
  edges.lhs = {1};
  edges.rhs = {2};
  edges.rel = {3};

  EXPECT_EQ(EncodeEdges(edges), std::string("\1\0\0\0\2\0\0\0\3\0\0\0", 12));
}

// The left-hand entities are featurized; the right-hand ones of the second edge too, if `both`.
EdgeList Featurized(bool weighted, bool both) {
  EdgeList edges = Two(weighted);
  edges.lhs = {-1, -1};
  edges.features[0].Append(std::vector<EntityOffset>{3, 1, 3});
  edges.features[0].Append({});
  if (both) {
    edges.rhs[1] = -1;
    edges.features[1].Append({});
    edges.features[1].Append(std::vector<EntityOffset>{2147483646});
  }
  return edges;
}

TEST(EdgeCodecTest, GivesBackFeatures) {
  for (const bool weighted : {false, true}) {
    for (const bool both : {false, true}) {
      const EdgeList edges = Featurized(weighted, both);

      const auto decoded = DecodeEdges(EncodeEdges(edges), 2, /*featurized=*/true);

      ASSERT_THAT(decoded, IsOk());
      EXPECT_EQ(decoded->lhs, edges.lhs);
      EXPECT_EQ(decoded->rhs, edges.rhs);
      EXPECT_EQ(decoded->weight, edges.weight);
      EXPECT_EQ(decoded->features[0], edges.features[0]);
      EXPECT_EQ(decoded->features[1], edges.features[1]);
    }
  }
}

TEST(EdgeCodecTest, FeaturesThatDoNotFitAreNoEdges) {
  const std::string whole = EncodeEdges(Featurized(/*weighted=*/true, /*both=*/true));
  const auto refused = StatusIs(absl::StatusCode::kDataLoss);

  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(DecodeEdges(whole.substr(0, size), 2, /*featurized=*/true), refused) << size;
  }
  EXPECT_THAT(DecodeEdges(whole, 1, /*featurized=*/true), refused);
  EXPECT_THAT(DecodeEdges(whole, 3, /*featurized=*/true), refused);
  // The number of features of the first edge: as many as there can be, and none at all.
  for (const int32_t count : {2147483647, -1, 2, 4}) {
    std::string bad = whole;
    std::memcpy(bad.data() + 2 * EdgeBytes(true), &count, sizeof count);
    EXPECT_THAT(DecodeEdges(bad, 2, /*featurized=*/true), refused) << count;
  }
}

TEST(EdgeCodecTest, BytesOfAnotherLengthAreNoEdges) {
  const std::string bytes = EncodeEdges(Two(false));

  EXPECT_THAT(DecodeEdges(bytes, 1), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeEdges(bytes, 3), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeEdges(absl::string_view(bytes).substr(1), 2),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeEdges("x", 0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(DecodeEdges("", 0), IsOk());
}

}  // namespace
}  // namespace weft
