#include "services/param_server/local_param_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using testing::IsOk;
using testing::StatusIs;

// Keeps the first value of the first parameter.
class FakeStore : public SharedStateStore {
 public:
  absl::Status Load(SharedState* live) override {
    if (!load_error.ok()) return load_error;
    live->parameters.all()[0].values.data()[0] = value;
    return absl::OkStatus();
  }
  absl::Status Save(const SharedState& live) override {
    value = live.parameters.all()[0].values.data()[0];
    return absl::OkStatus();
  }

  absl::Status load_error;
  float value = 5;
};

SharedState MakeState() {
  SharedState state;
  state.parameters.Add("p", {1}, 1, 1);
  return state;
}

TEST(LocalParamClientTest, JoinFillsTheLiveState) {
  FakeStore store;
  LocalParamClient client(&store);
  SharedState live = MakeState();

  ASSERT_THAT(client.Join(&live), IsOk());

  EXPECT_EQ(live.parameters.all()[0].values.data()[0], 5);
}

TEST(LocalParamClientTest, FlushKeepsWhatTheLiveStateHasGained) {
  FakeStore store;
  LocalParamClient client(&store);
  SharedState live = MakeState();
  ASSERT_THAT(client.Join(&live), IsOk());
  live.parameters.all()[0].values.data()[0] = 6;

  ASSERT_THAT(client.Flush(), IsOk());

  EXPECT_EQ(store.value, 6);
}

TEST(LocalParamClientTest, JoiningAgainForgetsWhatWasNotFlushed) {
  FakeStore store;
  LocalParamClient client(&store);
  SharedState live = MakeState();
  ASSERT_THAT(client.Join(&live), IsOk());
  live.parameters.all()[0].values.data()[0] = 6;

  ASSERT_THAT(client.Join(&live), IsOk());

  EXPECT_EQ(live.parameters.all()[0].values.data()[0], 5);
}

TEST(LocalParamClientTest, FlushBeforeJoinIsRefused) {
  FakeStore store;
  LocalParamClient client(&store);

  EXPECT_THAT(client.Flush(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(LocalParamClientTest, AFailedJoinIsNoJoin) {
  FakeStore store;
  store.load_error = absl::DataLossError("damaged");
  LocalParamClient client(&store);
  SharedState live = MakeState();

  EXPECT_THAT(client.Join(&live), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(client.Flush(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
