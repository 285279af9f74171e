#include "services/common/rpc/unary_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "services/common/rpc/channel_pool.h"
#include "tests/common/rpc/echo_server.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::EchoRequest;
using ::weft::testing::EchoResponse;
using ::weft::testing::EchoServer;
using ::weft::testing::EchoService;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

std::unique_ptr<EchoService::Stub> StubOf(const std::string& address) {
  const auto channel = MakeChannel(address, Role::kLockServer, {});
  EXPECT_TRUE(channel.ok()) << channel.status();
  return EchoService::NewStub(*channel);
}

absl::Status Echo(EchoService::Stub* stub, const EchoRequest& request, EchoResponse* response) {
  return UnaryCall({}, [&](auto* context, auto* reactor) {
    stub->async()->Echo(context, &request, response, reactor);
  });
}

TEST(UnaryCallTest, EveryCodeAndMessageArrives) {
  EchoServer server;
  const auto stub = StubOf(server.runner->address());
  for (int code = 2; code <= 16; ++code) {
    EchoRequest request;
    request.set_code(code);
    request.set_message("partition (0, 3): caf\xC3\xA9, 100%");
    EchoResponse response;

    EXPECT_EQ(Echo(stub.get(), request, &response),
              absl::Status(static_cast<absl::StatusCode>(code), request.message()));
  }
}

TEST(UnaryCallTest, WhatTheServerCancelsIsUnavailable) {
  EchoServer server;
  const auto stub = StubOf(server.runner->address());
  CallGroup group;
  EchoRequest request;
  request.set_code(static_cast<int>(absl::StatusCode::kCancelled));
  request.set_message("the server ends");
  EchoResponse response;

  for (CallGroup* const calls : {static_cast<CallGroup*>(nullptr), &group}) {
    const absl::Status status =
        UnaryCall({absl::Seconds(10), calls}, [&](auto* context, auto* reactor) {
          stub->async()->Echo(context, &request, &response, reactor);
        });
    EXPECT_EQ(status, absl::UnavailableError("the server ends"));
  }
}

TEST(UnaryCallTest, TheLimitOfFourMegabytesIsInPlace) {
  EchoServer server;
  const auto stub = StubOf(server.runner->address());
  EchoRequest request;
  EchoResponse response;

  request.set_payload(std::string((4 << 20) - 64, 'x'));
  EXPECT_THAT(Echo(stub.get(), request, &response), IsOk());
  EXPECT_EQ(response.payload().size(), request.payload().size());

  request.set_payload(std::string((4 << 20) + 1, 'x'));
  EXPECT_THAT(Echo(stub.get(), request, &response), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(UnaryCallTest, EndsAtItsDeadline) {
  EchoServer server;
  const auto stub = StubOf(server.runner->address());
  weft::testing::WaitForDrainRequest request;
  weft::testing::WaitForDrainResponse response;
  CallOptions options;
  options.timeout = absl::Milliseconds(50);

  const absl::Status status = UnaryCall(options, [&](auto* context, auto* reactor) {
    stub->async()->WaitForDrain(context, &request, &response, reactor);
  });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(UnaryCallTest, CancellingAGroupEndsItsCallsAndThoseToCome) {
  EchoServer server;
  const auto stub = StubOf(server.runner->address());
  weft::testing::WaitForDrainRequest request;
  weft::testing::WaitForDrainResponse response;
  CallGroup group;
  CallOptions options;
  options.timeout = absl::Minutes(1);
  options.group = &group;
  absl::Status status;
  const auto wait = [&] {
    return UnaryCall(options, [&](auto* context, auto* reactor) {
      stub->async()->WaitForDrain(context, &request, &response, reactor);
    });
  };
  std::thread caller([&] { status = wait(); });
  server.service.AwaitCalls(1);

  group.Cancel();
  caller.join();

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(wait(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(UnaryCallTest, NobodyThereIsAnErrorWithRoleAddressAndCause) {
  std::string address;
  {
    EchoServer server;
    address = server.runner->address();
  }
  const auto stub = StubOf(address);
  RetryOptions retry;
  retry.patience = absl::Milliseconds(300);
  EchoRequest request;
  EchoResponse response;

  const absl::Status status =
      UnaryCallWithRetry({"partition server", address}, retry, Idempotency::kIdempotent, {},
                         [&](auto* context, auto* reactor) {
                           stub->async()->Echo(context, &request, &response, reactor);
                         });

  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr("partition server at " + address),
                                     HasSubstr("gave up"), HasSubstr("onnect"))));
}

TEST(UnaryCallTest, AServerThatComesLaterIsFound) {
  std::string address;
  {
    EchoServer server;
    address = server.runner->address();
  }
  const auto stub = StubOf(address);
  EchoRequest request;
  request.set_payload("hello");
  EchoResponse response;
  EXPECT_THAT(Echo(stub.get(), request, &response), StatusIs(absl::StatusCode::kUnavailable));
  absl::Status status;
  std::thread caller([&] {
    status = UnaryCallWithRetry({"partition server", address}, {}, Idempotency::kIdempotent, {},
                                [&](auto* context, auto* reactor) {
                                  stub->async()->Echo(context, &request, &response, reactor);
                                });
  });

  EchoServer server(address);
  caller.join();

  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(response.payload(), "hello");
}

TEST(ChannelPoolTest, HandsOutAPeersChannelsInTurn) {
  ChannelPool::Options options;
  options.connections = 2;
  ChannelPool pool(options);

  const auto first = pool.Get("127.0.0.1:7000");
  const auto second = pool.Get("127.0.0.1:7000");
  const auto third = pool.Get("127.0.0.1:7000");
  const auto other = pool.Get("127.0.0.1:7001");

  ASSERT_THAT(first, IsOk());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(*first, *third);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(pool.GetAll("127.0.0.1:7000")->size(), 2u);
}

TEST(ChannelPoolTest, RefusesWhatIsNoAddress) {
  ChannelPool pool({});
  for (const char* address : {"", "127.0.0.1", "localhost:", "localhost:0", "localhost:99999"}) {
    EXPECT_THAT(pool.Get(address), StatusIs(absl::StatusCode::kInvalidArgument)) << address;
  }
  EXPECT_THAT(pool.Get("10.0.0.1:7000"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

}  // namespace
}  // namespace weft
