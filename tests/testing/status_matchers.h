// GoogleMock matchers for absl::Status and absl::StatusOr.
//
//   ASSERT_THAT(writer.Finish(), IsOk());
//   EXPECT_THAT(Open(path), StatusIs(absl::StatusCode::kNotFound, HasSubstr("x.h5")));
#pragma once

#include <gmock/gmock.h>

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.ok();
}

MATCHER_P(StatusIs, code, "has the status code " + absl::StatusCodeToString(code)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code;
}

// `message`: a string or a matcher of one.
MATCHER_P2(StatusIs, code, message,
           "has the status code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

}  // namespace weft::testing
