#include "services/common/rpc/server_runner.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/unary_call.h"
#include "tests/common/rpc/echo_server.h"
#include "tests/testing/raw_connections.h"
#include "tests/testing/status_matchers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::EchoServer;
using ::weft::testing::EchoService;
using ::weft::testing::IsOk;
using ::weft::testing::StatusIs;

// The standard's HealthCheckResponse is one enum field: tag 8, then 1 for SERVING, 2 for not; its
// request is the name of a service: tag 10, the length.
std::string HealthBytes(const std::string& address, const std::string& service = "") {
  grpc::GenericStub stub(*MakeChannel(address, Role::kLockServer, {}));
  const std::string name =
      service.empty() ? "" : absl::StrCat("\x0a", std::string(1, char(service.size())), service);
  grpc::Slice bytes(name);
  grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  const absl::Status status = UnaryCall({}, [&](auto* context, auto* reactor) {
    stub.PrepareUnaryCall(context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                          reactor);
  });
  if (!status.ok()) return std::string(status.message());
  grpc::Slice slice;
  EXPECT_TRUE(response.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

TEST(ServerRunnerTest, HealthIsWhatTheMainSays) {
  EchoServer server;

  EXPECT_EQ(HealthBytes(server.runner->address()), "\x08\x02");
  server.runner->SetServing(true);
  EXPECT_EQ(HealthBytes(server.runner->address()), "\x08\x01");
}

TEST(ServerRunnerTest, IsLiveBeforeItServes) {
  EchoServer server;

  EXPECT_EQ(HealthBytes(server.runner->address(), "live"), "\x08\x01");
  EXPECT_THAT(HealthBytes(server.runner->address(), "other"), HasSubstr("unknown"));
  server.runner->SetServing(true);
  server.runner->SetServing(false);
  EXPECT_EQ(HealthBytes(server.runner->address(), "live"), "\x08\x01");
  EXPECT_EQ(HealthBytes(server.runner->address()), "\x08\x02");
}

TEST(ServerRunnerTest, APortInUseIsRefusedByName) {
  EchoServer server;
  ServerRunner::Options options;
  options.listen = server.runner->address();
  weft::testing::EchoServiceImpl service;

  EXPECT_THAT(ServerRunner::Start(options, {&service}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(server.runner->address())));
}

TEST(ServerRunnerTest, PlainTextBeyondThisMachineNeedsToBeAskedFor) {
  weft::testing::EchoServiceImpl service;
  ServerRunner::Options options;
  options.listen = "0.0.0.0:0";
  EXPECT_THAT(ServerRunner::Start(options, {&service}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--insecure")));

  options.security.allow_plain_text = true;
  EXPECT_THAT(MakeServerCredentials(options.listen, options.security), IsOk());
}

TEST(ServerRunnerTest, StrangersAreSentAwayAndOthersServed) {
  weft::testing::EchoServiceImpl service;
  ServerRunner::Options options;
  options.handshake_timeout = absl::Milliseconds(200);
  const auto runner = ServerRunner::Start(options, {&service});
  ASSERT_THAT(runner, IsOk());
  (*runner)->SetServing(true);
  const std::string address = (*runner)->address();

  weft::testing::RawConnections strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.Open(address, "");
    for (const std::string& bytes : weft::testing::BrokenStreams()) strangers.Open(address, bytes);
  }

  EXPECT_EQ(HealthBytes(address), "\x08\x01");
  EXPECT_EQ(strangers.AwaitEnds(absl::Minutes(1)), 0u);
  EXPECT_EQ(HealthBytes(address), "\x08\x01");
}

TEST(ServerRunnerTest, AConnectionWithoutACallIsClosedAndMadeAnew) {
  weft::testing::EchoServiceImpl service;
  ServerRunner::Options options;
  options.max_idle = absl::Milliseconds(100);
  const auto runner = ServerRunner::Start(options, {&service});
  ASSERT_THAT(runner, IsOk());
  const auto channel = *MakeChannel((*runner)->address(), Role::kLockServer, {});
  const auto stub = EchoService::NewStub(channel);
  const weft::testing::EchoRequest request;
  weft::testing::EchoResponse response;
  const auto echo = [&] {
    return UnaryCall({}, [&](auto* context, auto* reactor) {
      stub->async()->Echo(context, &request, &response, reactor);
    });
  };

  ASSERT_THAT(echo(), IsOk());
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY,
                                          absl::ToChronoTime(absl::Now() + absl::Minutes(1))))
      << "it is still connected";
  EXPECT_THAT(echo(), IsOk());
}

TEST(ServerRunnerTest, DrainAnswersTheCallsThatWait) {
  EchoServer server;
  const auto stub =
      EchoService::NewStub(*MakeChannel(server.runner->address(), Role::kLockServer, {}));
  weft::testing::WaitForDrainRequest request;
  weft::testing::WaitForDrainResponse response;
  absl::Status status;
  std::thread caller([&] {
    CallOptions options;
    options.timeout = absl::Minutes(1);
    status = UnaryCall(options, [&](auto* context, auto* reactor) {
      stub->async()->WaitForDrain(context, &request, &response, reactor);
    });
  });
  server.service.AwaitCalls(1);

  server.runner->Drain();
  caller.join();

  EXPECT_THAT(status, IsOk());
  EXPECT_TRUE(response.drained());
}

TEST(CredentialsTest, KnowsThisMachine) {
  for (const char* address :
       {"127.0.0.1:7000", "127.8.8.8:1", "localhost:7000", "[::1]:7000", "unix:/tmp/weft.sock"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"10.0.0.1:7000", "0.0.0.0:7000", "[::]:7000", "lock-server:7000",
                              "127.0.0.1.example.org:7000", "127.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

}  // namespace
}  // namespace weft
