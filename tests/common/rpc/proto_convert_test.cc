#include "services/common/rpc/proto_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

TEST(ProtoConvertTest, ContextsKeepAMissingGenerationApartFromZero) {
  RunContext context = {"0123", 5, 77, std::nullopt};
  EXPECT_EQ(FromProto(ToProto(context)), context);
  context.generation = 0;
  EXPECT_EQ(FromProto(ToProto(context)), context);
}

TEST(ProtoConvertTest, PositionsAndBucketsSurvive) {
  const PassPosition position = {12, 3, 1, 2, 4};
  EXPECT_EQ(FromProto(ToProto(position)), position);
  const Bucket bucket = {3, 7};
  EXPECT_EQ(FromProto(ToProto(bucket)), bucket);
}

TEST(ProtoConvertTest, VersionsSurviveWithShardsAndPlaces) {
  const VersionInfo version = {
      {{-1, 2}, (Token{3} << 40) + 9},
      {{0, 0, 100, 40'400, 0xFEDCBA9876543210u, {{11, 0}, {12, 99}}}, {1, 100, 50, 20'200, 1, {}}}};

  EXPECT_EQ(FromProto(ToProto(version)), version);
}

TEST(ProtoConvertTest, ServersSurviveAndNonsenseIsRefused) {
  const ServerInfo server = {ServerRole::kParam, 5, 6, "127.0.0.1:7", true};

  const absl::StatusOr<ServerInfo> back = FromProto(ToProto(server));

  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, server);
  v1::ServerInfo proto = ToProto(server);
  proto.set_role(static_cast<v1::ServerRole>(42));
  EXPECT_THAT(FromProto(proto), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("42")));
  proto = ToProto(server);
  proto.set_store_id(0);
  EXPECT_THAT(FromProto(proto),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("127.0.0.1:7")));
}

TEST(ProtoConvertTest, StatsSurvive) {
  const Stats stats = {10, {{"loss", 0.5}, {"reg", 0.25}}};

  const Stats back = FromProto(ToProto(stats));

  EXPECT_EQ(back.count, 10);
  EXPECT_EQ(back.metrics, stats.metrics);
}

}  // namespace
}  // namespace weft
