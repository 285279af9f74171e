// What every PushLog does. Each back end runs these with a fixture that makes one.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/param_server/push_log.h"
#include "tests/testing/status_matchers.h"

namespace weft::testing {

using MakePushLog = std::function<std::unique_ptr<PushLog>()>;

class PushLogContract : public ::testing::TestWithParam<MakePushLog> {
 protected:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  Pairs Read(std::string_view prefix) {
    Pairs pairs;
    EXPECT_THAT(log_->Scan(prefix,
                           [&](std::string_view key, std::string_view value) {
                             pairs.emplace_back(key, value);
                             return absl::OkStatus();
                           }),
                IsOk());
    return pairs;
  }

  std::unique_ptr<PushLog> log_ = GetParam()();
};

TEST_P(PushLogContract, ScanFindsKeysOfAPrefixInOrder) {
  ASSERT_THAT(log_->Write({{"b2", "two"}, {"a", "x"}, {"b1", "one"}, {"c", "y"}}), IsOk());

  EXPECT_EQ(Read("b"), (Pairs{{"b1", "one"}, {"b2", "two"}}));
  EXPECT_EQ(Read("d"), Pairs());
}

TEST_P(PushLogContract, TheLastWriteOfAKeyCounts) {
  ASSERT_THAT(log_->Write({{"a", "1"}}), IsOk());
  ASSERT_THAT(log_->Write({{"a", "2"}, {"a", "3"}}), IsOk());

  EXPECT_EQ(Read("a"), (Pairs{{"a", "3"}}));
}

TEST_P(PushLogContract, RemovedKeysAreGone) {
  ASSERT_THAT(log_->Write({{"a", "1"}, {"b", "2"}}), IsOk());
  ASSERT_THAT(log_->Write({{"a", {}, true}, {"never there", {}, true}}), IsOk());

  EXPECT_EQ(Read(""), (Pairs{{"b", "2"}}));
}

TEST_P(PushLogContract, RemoveAllTakesAPrefixOnly) {
  const std::string last = "b\xff";
  ASSERT_THAT(log_->Write({{"a", "1"}, {"b", "2"}, {"b1", "3"}, {last, "4"}, {"c", "5"}}), IsOk());

  ASSERT_THAT(log_->RemoveAll("b"), IsOk());

  EXPECT_EQ(Read("a"), (Pairs{{"a", "1"}}));
  EXPECT_EQ(Read("b"), Pairs());
  EXPECT_EQ(Read("c"), (Pairs{{"c", "5"}}));
}

TEST_P(PushLogContract, ValuesMayHoldAnyBytes) {
  const std::string key("k\0\xff", 3);
  const std::string value("\0v\xff", 3);
  ASSERT_THAT(log_->Write({{key, value}}), IsOk());

  EXPECT_EQ(Read("k"), (Pairs{{key, value}}));
}

TEST_P(PushLogContract, ScanEndsAtTheVisitorsError) {
  ASSERT_THAT(log_->Write({{"a", "1"}, {"b", "2"}}), IsOk());

  int visited = 0;
  EXPECT_THAT(log_->Scan("",
                         [&](std::string_view, std::string_view) {
                           ++visited;
                           return absl::DataLossError("enough");
                         }),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(visited, 1);
}

TEST_P(PushLogContract, SyncSucceedsWithNothingToSync) {
  EXPECT_THAT(log_->Sync(), IsOk());
  ASSERT_THAT(log_->Write({{"a", "1"}}), IsOk());
  EXPECT_THAT(log_->Sync(), IsOk());
}

}  // namespace weft::testing
