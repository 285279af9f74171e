#include "services/common/rpc/rpc_metrics.h"

#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "absl/time/clock.h"
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

// A server whose calls are counted.
class RpcMetricsTest : public ::testing::Test {
 protected:
  static ServerRunner::Options Counted(RpcMetrics* metrics) {
    ServerRunner::Options options;
    options.metrics = metrics;
    return options;
  }

  RpcMetrics metrics_{"calls_seconds", ""};
  EchoServiceImpl service_;
  const std::unique_ptr<ServerRunner> runner_ =
      *ServerRunner::Start(Counted(&metrics_), {&service_});
  const std::shared_ptr<grpc::Channel> channel_ =
      *MakeChannel(runner_->address(), Role::kLockServer, {});
};

TEST_F(RpcMetricsTest, AServerCountsEveryOutcomeByMethodAndCode) {
  const auto stub = EchoService::NewStub(channel_);
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
  EXPECT_TRUE(absl::IsUnimplemented(call(absl::StatusCode::kUnimplemented)));
  runner_->Drain();
  RecordedMetrics page;
  metrics_.Write(&page);

  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=OK}"), 2);
  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=DATA_LOSS}"), 1);
  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=UNIMPLEMENTED}"), 1);
  EXPECT_EQ(page.values().size(), 6u);  // of each, its sum beside it
}

// Dashboards tell such calls from failures by this code.
TEST_F(RpcMetricsTest, AServerCountsACallThatItsCallerEndsAsCancelled) {
  const auto stub = EchoService::NewStub(channel_);
  CallGroup group;
  CallOptions call;
  call.group = &group;
  const testing::WaitForDrainRequest request;
  testing::WaitForDrainResponse response;
  absl::Status status;
  std::thread caller([&] {
    status = UnaryCall(call, [&](auto* context, auto* reactor) {
      stub->async()->WaitForDrain(context, &request, &response, reactor);
    });
  });

  service_.AwaitCalls(1);
  group.Cancel();
  caller.join();
  runner_->Drain();
  RecordedMetrics page;
  metrics_.Write(&page);

  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(page.Value("calls_seconds_count{method=WaitForDrain,code=CANCELLED}"), 1);
  EXPECT_EQ(page.values().size(), 2u);  // its sum beside it
}

TEST_F(RpcMetricsTest, ACallThatIsEndedBeforeItsRequestArrivesIsCancelledToo) {
  grpc::CompletionQueue queue;
  {
    grpc::ClientContext context;
    const auto call =
        grpc::GenericStub(channel_).PrepareCall(&context, "/weft.testing.EchoService/Echo", &queue);
    void* tag = nullptr;
    bool ok = false;
    call->StartCall(nullptr);  // without a message
    ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
    context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  }
  queue.Shutdown();

  // The server hears of it in its own time.
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  RecordedMetrics page;
  while (page.values().empty() && absl::Now() < deadline) metrics_.Write(&page);

  EXPECT_EQ(page.Value("calls_seconds_count{method=Echo,code=CANCELLED}"), 1);
  runner_->Drain();
}

}  // namespace
}  // namespace weft
