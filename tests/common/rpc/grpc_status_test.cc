#include "services/common/rpc/grpc_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

TEST(GrpcStatusTest, EveryCodeAndItsMessageSurviveTheWayThereAndBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "partition (0, 3): why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status) << status;
  }
  EXPECT_THAT(FromGrpcStatus(ToGrpcStatus(absl::OkStatus())), IsOk());
}

TEST(GrpcStatusTest, CodesHaveTheSameNamesOnTheWire) {
  EXPECT_EQ(ToGrpcStatus(absl::AbortedError("")).error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(ToGrpcStatus(absl::DataLossError("")).error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(ToGrpcStatus(absl::UnavailableError("")).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(GrpcStatusTest, LongMessagesAreCutBetweenCharacters) {
  std::string message(kMaxStatusMessageBytes - 4, 'x');
  for (int i = 0; i < 100; ++i) message += "\xC3\xA9";

  const std::string cut = ToGrpcStatus(absl::InternalError(message)).error_message();

  EXPECT_LE(cut.size(), kMaxStatusMessageBytes);
  EXPECT_EQ(cut, message.substr(0, kMaxStatusMessageBytes - 4) + "...");
}

TEST(GrpcStatusTest, ABrokenConnectionIsUnavailable) {
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNKNOWN, "Stream removed")),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(FromGrpcStatus(grpc::Status(grpc::StatusCode::INTERNAL,
                                          "Received RST_STREAM with error code 2")),
              StatusIs(absl::StatusCode::kUnavailable));
}

TEST(GrpcStatusTest, UnknownCodesOfAPeerAreUnknown) {
  // Within what the enumeration can hold, but not one of its values.
  EXPECT_THAT(FromGrpcStatus(grpc::Status(static_cast<grpc::StatusCode>(30), "odd")),
              StatusIs(absl::StatusCode::kUnknown, "odd"));
}

}  // namespace
}  // namespace weft
