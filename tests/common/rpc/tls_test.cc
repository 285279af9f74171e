// Servers and clients over TLS, on loopback.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "services/common/file_util.h"
#include "services/common/rpc/channel_pool.h"
#include "services/common/rpc/grpc_log.h"
#include "services/common/rpc/server_runner.h"
#include "services/common/rpc/unary_call.h"
#include "tests/testing/recorded_metrics.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/test_ca.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::weft::testing::IsOk;
using ::weft::testing::RecordedMetrics;
using ::weft::testing::StatusIs;
using ::weft::testing::TempDir;
using ::weft::testing::TestCa;

// Answers to two methods; says of the others that it does not have them.
class SmallLockService : public v1::LockService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetRunState(grpc::CallbackServerContext* context,
                                        const v1::GetRunStateRequest*,
                                        v1::GetRunStateResponse* response) override {
    response->set_revision(7);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* PauseRun(grpc::CallbackServerContext* context,
                                     const v1::PauseRunRequest*, v1::PauseRunResponse*) override {
    paused = true;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  std::atomic<bool> paused = false;
};

SecurityOptions Identity(const TlsFiles& files) {
  auto identity = TlsIdentity::Load(files, {});
  EXPECT_THAT(identity, IsOk());
  return {.tls = identity.ok() ? *identity : nullptr};
}

struct Server {
  explicit Server(const SecurityOptions& security) {
    ServerRunner::Options options;
    options.security = security;
    options.grace = absl::Milliseconds(200);
    auto started = ServerRunner::Start(options, {&service});
    EXPECT_THAT(started, IsOk());
    if (started.ok()) runner = *std::move(started);
  }

  SmallLockService service;
  std::unique_ptr<ServerRunner> runner;
};

absl::Status GetRunState(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::LockService::NewStub(channel);
  const v1::GetRunStateRequest request;
  v1::GetRunStateResponse response;
  const absl::Status status = UnaryCall({}, [&](auto* context, auto* reactor) {
    stub->async()->GetRunState(context, &request, &response, reactor);
  });
  EXPECT_EQ(response.revision(), status.ok() ? 7u : 0u);
  return status;
}

absl::Status Pause(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::LockService::NewStub(channel);
  const v1::PauseRunRequest request;
  v1::PauseRunResponse response;
  return UnaryCall({}, [&](auto* context, auto* reactor) {
    stub->async()->PauseRun(context, &request, &response, reactor);
  });
}

class TlsTest : public ::testing::Test {
 protected:
  // A connection of its own each time.
  std::shared_ptr<grpc::Channel> Connect(const SecurityOptions& security,
                                         Role peer = Role::kLockServer) {
    return *MakeChannel(server_.runner->address(), peer, security, ++connections_);
  }
  // A client that is not ours, and presents whatever it likes.
  std::shared_ptr<grpc::Channel> ConnectAs(const std::string& certificate, const std::string& key) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = *ReadFile(ca_.File("ca.crt"));
    options.pem_cert_chain = certificate;
    options.pem_private_key = key;
    grpc::ChannelArguments arguments = MakeChannelArguments(++connections_);
    arguments.SetSslTargetNameOverride(RoleDnsName(Role::kLockServer));
    return grpc::CreateCustomChannel(server_.runner->address(), grpc::SslCredentials(options),
                                     arguments);
  }

  // Of the server's identity.
  double Metric(const std::string& sample) const {
    RecordedMetrics page;
    security_.tls->WriteMetrics(&page);
    return page.Value(sample);
  }

  const TempDir dir_;
  const TestCa ca_{dir_.File("ca")};
  const SecurityOptions security_ = Identity(ca_.Files("lock-server"));
  Server server_{security_};
  int connections_ = 0;
};

TEST_F(TlsTest, ARoleCallsWhatItMay) {
  const auto trainer = Connect(Identity(ca_.Files("trainer")));
  EXPECT_THAT(GetRunState(trainer), IsOk());
  EXPECT_THAT(Pause(trainer), StatusIs(absl::StatusCode::kPermissionDenied,
                                       AllOf(HasSubstr("weft.v1.LockService/PauseRun"),
                                             HasSubstr("operator may"))));
  EXPECT_FALSE(server_.service.paused) << "the handler was called all the same";
  EXPECT_EQ(Metric("weft_tls_refused_calls_total{reason=role}"), 1);

  const auto oper = Connect(Identity(ca_.Files("operator")));
  EXPECT_THAT(GetRunState(oper), IsOk());
  EXPECT_THAT(Pause(oper), IsOk());
  EXPECT_TRUE(server_.service.paused);
}

TEST_F(TlsTest, AClientWithoutACertificateIsRefused) {
  // The same client with one is not.
  EXPECT_THAT(GetRunState(ConnectAs(*ReadFile(ca_.File("trainer.crt")),
                                    *ReadFile(ca_.File("trainer.key")))),
              IsOk());
  EXPECT_THAT(GetRunState(ConnectAs("", "")),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a certificate of its CA")));
}

TEST_F(TlsTest, ACertificateOfAnotherCaIsRefused) {
  const TestCa other(dir_.File("other"));
  EXPECT_THAT(GetRunState(ConnectAs(*ReadFile(other.File("trainer.crt")),
                                    *ReadFile(other.File("trainer.key")))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a certificate of its CA")));
  // One who believes the other CA does not believe the server either.
  EXPECT_THAT(GetRunState(Connect(Identity(other.Files("trainer")))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--tls-ca")));
}

TEST_F(TlsTest, AnExpiredCertificateIsRefused) {
  ca_.Renew(/*days=*/-1);
  EXPECT_THAT(GetRunState(ConnectAs(*ReadFile(ca_.File("trainer.crt")),
                                    *ReadFile(ca_.File("trainer.key")))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a certificate of its CA")));
}

TEST_F(TlsTest, AServerOfAnotherRoleIsRefused) {
  const SecurityOptions trainer = Identity(ca_.Files("trainer"));
  EXPECT_THAT(GetRunState(Connect(trainer, Role::kPartitionServer)),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("its certificate carries lock-server, not partition-server")));
  RecordedMetrics page;
  trainer.tls->WriteMetrics(&page);
  EXPECT_GE(page.Value("weft_tls_refused_servers_total"), 1);  // gRPC may try again
}

// Of this process: of the server, and of the clients of the test.
double FailedHandshakes(const std::string& reason) {
  RecordedMetrics page;
  WriteHandshakeMetrics(&page);
  return page.Value("weft_tls_failed_handshakes_total{reason=" + reason + "}");
}

// Servers hear of a refusal in their own time.
void AwaitFailedHandshakes(const std::string& reason, double more_than) {
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (FailedHandshakes(reason) <= more_than && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_GT(FailedHandshakes(reason), more_than) << reason;
}

TEST_F(TlsTest, HandshakesThatFailAreCountedByReason) {
  TakeGrpcLog();
  const double without = FailedHandshakes("no_certificate");
  const double others = FailedHandshakes("not_believed");
  const double broken = FailedHandshakes("other");
  const TestCa other(dir_.File("other"));

  EXPECT_FALSE(GetRunState(ConnectAs("", "")).ok());
  AwaitFailedHandshakes("no_certificate", without);
  EXPECT_FALSE(GetRunState(ConnectAs(*ReadFile(other.File("trainer.crt")),
                                     *ReadFile(other.File("trainer.key"))))
                   .ok());
  AwaitFailedHandshakes("not_believed", others);
  EXPECT_FALSE(GetRunState(Connect({})).ok());
  AwaitFailedHandshakes("other", broken);
}

TEST_F(TlsTest, TheCertificatesExpiryIsTold) {
  const double days = (Metric("weft_tls_certificate_expiry_timestamp_seconds") -
                       absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())) /
                      86'400;
  EXPECT_NEAR(days, 30, 1.1);
  EXPECT_EQ(Metric("weft_tls_files_usable"), 1);
}

TEST_F(TlsTest, PlainTextAndTlsDoNotMix) {
  EXPECT_THAT(GetRunState(Connect({})),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--tls-cert")));

  Server plain({});
  const SecurityOptions trainer = Identity(ca_.Files("trainer"));
  EXPECT_THAT(GetRunState(*MakeChannel(plain.runner->address(), Role::kLockServer, trainer, 1'000)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("does not speak TLS")));
}

// What the server on the other side of a new connection shows.
std::string CertificateShown(const std::shared_ptr<grpc::Channel>& channel) {
  const auto stub = v1::LockService::NewStub(channel);
  grpc::ClientContext context;
  const v1::GetRunStateRequest request;
  v1::GetRunStateResponse response;
  const grpc::Status status = stub->GetRunState(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  if (!status.ok()) return "";
  const auto shown = context.auth_context()->FindPropertyValues("x509_pem_cert");
  return shown.empty() ? "" : std::string(shown[0].data(), shown[0].size());
}

TEST_F(TlsTest, NewFilesAreUsedByNewConnectionsAndOldOnesGoOn) {
  const SecurityOptions trainer = Identity(ca_.Files("trainer"));
  const auto old = Connect(trainer);
  const std::string first = CertificateShown(old);
  EXPECT_EQ(first, *ReadFile(ca_.File("lock-server.crt")));

  ca_.Renew();

  const std::string second = *ReadFile(ca_.File("lock-server.crt"));
  ASSERT_NE(first, second);
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  std::string shown = first;
  while (shown == first && absl::Now() < deadline) shown = CertificateShown(Connect(trainer));
  EXPECT_EQ(shown, second);
  EXPECT_EQ(Metric("weft_tls_files_usable"), 1);
  EXPECT_EQ(CertificateShown(old), first) << "the connection was broken off";
}

TEST_F(TlsTest, NewFilesThatCannotBeUsedChangeNothing) {
  const SecurityOptions trainer = Identity(ca_.Files("trainer"));
  const std::string before = *ReadFile(ca_.File("trainer.key"));
  ASSERT_THAT(trainer.tls->files_status(), IsOk());

  ASSERT_THAT(WriteFileAtomically(ca_.File("trainer.key"), "half a key"), IsOk());

  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (trainer.tls->files_status().ok() && absl::Now() < deadline) {
    EXPECT_THAT(GetRunState(Connect(trainer)), IsOk());
  }
  EXPECT_THAT(trainer.tls->files_status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("trainer.key")));
  RecordedMetrics page;
  trainer.tls->WriteMetrics(&page);
  EXPECT_EQ(page.Value("weft_tls_files_usable"), 0);
  EXPECT_THAT(GetRunState(Connect(trainer)), IsOk());

  ASSERT_THAT(WriteFileAtomically(ca_.File("trainer.key"), before), IsOk());
  while (!trainer.tls->files_status().ok() && absl::Now() < deadline) {
    EXPECT_THAT(GetRunState(Connect(trainer)), IsOk());
  }
  EXPECT_THAT(trainer.tls->files_status(), IsOk());
}

}  // namespace
}  // namespace weft
