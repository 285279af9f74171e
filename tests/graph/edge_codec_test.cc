#include "graph/edge_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
