#include "services/partition_server/segment_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace weft::testing {
namespace {

std::string Joined(const ParsedSegment& segment) {
  std::string data;
  for (const absl::string_view piece : segment.data) data.append(piece.data(), piece.size());
  return data;
}

TEST(SegmentCodecTest, ASegmentComesThroughHoweverItsMessageIsCut) {
  const std::string data(300, 'x');
  for (const int64_t index : {int64_t{0}, int64_t{5}, int64_t{1} << 31}) {
    const std::string message = EncodeSegmentPrefix(index, 0x0123456789ABCDEF, 300) + data;
    const absl::string_view all = message;
    for (size_t cut = 0; cut <= message.size(); ++cut) {
      const auto segment = ParseSegment({all.substr(0, cut), all.substr(cut)});
      ASSERT_THAT(segment, IsOk()) << cut;
      EXPECT_EQ(segment->index, index);
      EXPECT_EQ(segment->checksum, 0x0123456789ABCDEF);
      EXPECT_EQ(Joined(*segment), data);
    }
    std::vector<absl::string_view> bytes;
    for (size_t i = 0; i < message.size(); ++i) bytes.push_back(all.substr(i, 1));
    ASSERT_THAT(ParseSegment(bytes), IsOk());
    EXPECT_EQ(Joined(*ParseSegment(bytes)), data);
  }
}

TEST(SegmentCodecTest, WhatIsCutShortOrTooLongIsRefused) {
  const std::string message = EncodeSegmentPrefix(3, 7, 100) + std::string(100, 'x');

  for (size_t length = 0; length < message.size(); ++length) {
    EXPECT_THAT(ParseSegment({absl::string_view(message).substr(0, length)}),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << length;
  }
  EXPECT_THAT(ParseSegment({message + "x"}), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SegmentCodecTest, HugeLengthsAreRefused) {
  for (const int64_t bytes : {int64_t{101}, int64_t{1} << 32, INT64_MAX}) {
    EXPECT_THAT(ParseSegment({EncodeSegmentPrefix(3, 7, bytes) + std::string(100, 'x')}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(ParseSegment({std::string(1, 0x12) + std::string(20, '\xFF')}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SegmentCodecTest, AnyChangedByteOfThePrefixIsRefusedOrAnotherSegment) {
  const std::string prefix = EncodeSegmentPrefix(3, 7, 100);
  const std::string data(100, 'x');
  for (size_t i = 0; i < prefix.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = prefix;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      const auto segment = ParseSegment({changed, data});
      if (!segment.ok()) continue;
      EXPECT_TRUE(segment->index != 3 || segment->checksum != 7);
    }
  }
}

TEST(SegmentCodecTest, AHeaderIsNoSegment) {
  EXPECT_FALSE(IsSegment({}));
  EXPECT_FALSE(IsSegment({"", "\x0A\x00"}));
  EXPECT_TRUE(IsSegment({"", EncodeSegmentPrefix(0, 0, 1)}));
}

}  // namespace
}  // namespace weft::testing
