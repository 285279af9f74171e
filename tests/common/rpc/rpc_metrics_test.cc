#include "services/common/rpc/rpc_metrics.h"

#include <gtest/gtest.h>

#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/unary_call.h"
#include "tests/common/rpc/echo_server.h"
#include "tests/testing/recorded_metrics.h"

namespace weft {
namespace {

using testing::EchoRequest;
using testing::EchoResponse;
using testing::EchoService;
using testing::EchoServiceImpl;
using testing::RecordedMetrics;

TEST(RpcMetricsTest, AServerCountsEveryOutcomeByMethodAndCode) {
  RpcMetrics metrics("calls_seconds", "");
  EchoServiceImpl service;
  ServerRunner::Options options;
  options.metrics = &metrics;
  const auto runner = *ServerRunner::Start(options, {&service});
  const auto stub = EchoService::NewStub(*MakeChannel(runner->address(), Role::kLockServer, {}));
  const auto call = [&](absl::StatusCode code) {
    EchoRequest request;
    request.set_code(static_cast<int>(code));
    request.set_message("because");
    EchoResponse response;
    return UnaryCall({}, [&](auto* context, auto* reactor) {
      stub->async()->Echo(context, &request, &response, reactor);
    });
  };

  EXPECT_TRUE(call(absl::StatusCode::kOk).ok());
  EXPECT_TRUE(call(absl::StatusCode::kOk).ok());
  EXPECT_TRUE(absl::IsDataLoss(call(absl::StatusCode::kDataLoss)));
  runner->Drain();
  RecordedMetrics page;
  metrics.Write(&page);

  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=OK}"), 2);
  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=DATA_LOSS}"), 1);
  EXPECT_EQ(page.values().size(), 4u);  // of each, its sum beside it
}

}  // namespace
}  // namespace weft
