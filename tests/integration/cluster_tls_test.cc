// Clusters over TLS: real processes, each with the certificate of its role.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "tests/integration/cluster_world.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/test_ca.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::weft::testing::ClusterOf;
using ::weft::testing::IsOk;
using ::weft::testing::LocalCluster;
using ::weft::testing::NewestVersion;
using ::weft::testing::NumParamServers;
using ::weft::testing::ProgramResult;
using ::weft::testing::RunProgram;
using ::weft::testing::SmallWorld;
using ::weft::testing::TestCa;
using ::weft::testing::TrainWorld;
using ::weft::testing::WeftPath;

constexpr int kManyEpochs = 10'000;  // longer than a test looks at it

// "partition-server-1" is of the role partition-server.
std::string RoleOf(const std::string& process) {
  const size_t dash = process.rfind('-');
  return absl::StrContains(process.substr(dash), "server") ? process : process.substr(0, dash);
}

LocalCluster::Options OverTls(LocalCluster::Options options, const TestCa& ca) {
  options.on_launch = [&ca](const std::string& name, std::vector<std::string>* arguments) {
    const std::vector<std::string> flags = ca.Flags(RoleOf(name));
    arguments->insert(arguments->end(), flags.begin(), flags.end());
  };
  auto identity = TlsIdentity::Load(ca.Files("operator"), {Role::kOperator});
  EXPECT_THAT(identity, IsOk());
  if (identity.ok()) options.security.tls = *identity;
  return options;
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class ClusterTlsTest : public ::testing::Test {
 protected:
  void Start(int epochs) {
    world_.emplace(SmallWorld({{"num_epochs", epochs}}));
    ca_.emplace(world_->File("ca"));
    cluster_.emplace(OverTls(ClusterOf(*world_), *ca_));
    ASSERT_TRUE(cluster_->ok());
  }
  // `weft COMMAND... LOCK-SERVER`, with the certificate of `role`, or none.
  ProgramResult Weft(const std::vector<std::string>& command, const std::string& role = "") {
    std::vector<std::string> arguments = {WeftPath()};
    arguments = arguments + command + std::vector{cluster_->processes().lock_server()};
    if (!role.empty()) arguments = arguments + ca_->Flags(role);
    return RunProgram(arguments, world_->InFolder());
  }
  std::string Log(const std::string& process) {
    return *ReadFile(absl::StrCat(cluster_->processes().LogFolder(), "/", process, ".log"));
  }
  void AwaitVersion(int64_t at_least) {
    cluster_->Await("a version", [&](const v1::GetRunStateResponse& state) {
      return NewestVersion(state) >= at_least;
    });
  }

  std::optional<TrainWorld> world_;
  std::optional<TestCa> ca_;
  std::optional<LocalCluster> cluster_;
};

TEST_F(ClusterTlsTest, CertificatesAreRenewedWhileTheRunTrains) {
  Start(/*epochs=*/kManyEpochs);
  AwaitVersion(2);

  ca_->Renew();

  const std::vector<std::string> processes = cluster_->processes().Names();
  cluster_->Await("new certificates", [&](const v1::GetRunStateResponse&) {
    return std::ranges::all_of(processes, [&](const std::string& process) {
      return absl::StrContains(Log(process), "new certificate files are used from now on");
    });
  });
  const int64_t version = NewestVersion(*cluster_->lock_server().GetRunState(false));
  // Connections of every kind are made anew: to a partition server, and by all to the lock server.
  cluster_->processes().Find("partition-server-0")->Signal(SIGKILL);
  cluster_->processes().Find("trainer-0")->Signal(SIGKILL);
  cluster_->processes().Find("lock-server")->Signal(SIGKILL);
  AwaitVersion(version + 3);
  for (const std::string& process : processes) {
    EXPECT_THAT(Log(process), Not(HasSubstr("call refused"))) << process;
  }
}

TEST_F(ClusterTlsTest, CommandsDoWhatTheirRoleMay) {
  Start(/*epochs=*/kManyEpochs);
  AwaitVersion(1);

  const ProgramResult status = Weft({"status"}, "operator");
  EXPECT_EQ(status.exit_code, 0) << status.err;
  EXPECT_EQ(Weft({"status"}, "trainer").exit_code, 0) << "reading is for every role";
  const ProgramResult plain = Weft({"status"});
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_THAT(plain.err, HasSubstr("--tls-cert"));

  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"cluster", "pause"}, {"checkpoint", "rollback", "0"}}) {
    std::vector<std::string> line =
        std::vector{WeftPath(), command[0], command[1], cluster_->processes().lock_server()};
    line.insert(line.end(), command.begin() + 2, command.end());
    const ProgramResult refused = RunProgram(line + ca_->Flags("trainer"), world_->InFolder());
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr("certificate of trainer may not call"), HasSubstr("operator may")));
  }
  EXPECT_THAT(Log("lock-server"), HasSubstr("call refused"));
  EXPECT_EQ(cluster_->lock_server().GetRunState(false)->context().generation(), 1u);

  const ProgramResult paused = Weft({"cluster", "pause"}, "operator");
  EXPECT_EQ(paused.exit_code, 0) << paused.err;
  cluster_->Await("the pause", [](const v1::GetRunStateResponse& state) {
    return state.phase() == v1::RUN_PHASE_PAUSED;
  });
  const ProgramResult pulled =
      Weft({"checkpoint", "pull", "-o", world_->File("pulled")}, "operator");
  EXPECT_EQ(pulled.exit_code, 0) << pulled.err;
}

TEST_F(ClusterTlsTest, AProcessWithTheWrongCertificateSaysWhyInOneLine) {
  Start(/*epochs=*/kManyEpochs);
  const TestCa other(world_->File("other"));
  const auto trainer = [&](const std::vector<std::string>& flags) {
    return std::vector<std::string>{LocalCluster::Program("weft-trainer"), "--lock-server",
                                    cluster_->processes().lock_server(), "--patience", "3"} +
           flags;
  };

  const ProgramResult role = RunProgram(trainer(ca_->Flags("operator")), world_->InFolder());
  EXPECT_EQ(role.exit_code, 1);
  EXPECT_THAT(role.err,
              AllOf(HasSubstr("operator.crt carries the roles of operator"), HasSubstr("trainer")));

  const ProgramResult wrong_ca = RunProgram(trainer(other.Flags("trainer")), world_->InFolder());
  EXPECT_EQ(wrong_ca.exit_code, 1);
  EXPECT_THAT(wrong_ca.err, HasSubstr("waiting for the lock server"));
  EXPECT_THAT(wrong_ca.err, HasSubstr("--tls-ca"));

  const ProgramResult plain = RunProgram(trainer({}), world_->InFolder());
  EXPECT_EQ(plain.exit_code, 1);
  EXPECT_THAT(plain.err, HasSubstr("--tls-cert"));

  const ProgramResult half =
      RunProgram(trainer({"--tls-cert", ca_->File("trainer.crt")}), world_->InFolder());
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.err, HasSubstr("--tls-cert requires"));
}

TEST(ClusterUpTlsTest, TrainsToTheEnd) {
  const TrainWorld world(SmallWorld());
  const TestCa ca(world.File("ca"));
  const std::vector<std::string> command = {WeftPath(),
                                            "cluster",
                                            "up",
                                            "run.json",
                                            "--threads",
                                            "1",
                                            "--param-servers",
                                            std::to_string(NumParamServers())};

  const ProgramResult narrow = RunProgram(command + ca.Flags("operator"), world.InFolder());
  EXPECT_EQ(narrow.exit_code, 1);
  EXPECT_THAT(narrow.err, HasSubstr("operator.crt carries the roles of operator"));

  const ProgramResult up = RunProgram(command + ca.Flags("cluster"), world.InFolder());
  ASSERT_EQ(up.exit_code, 0) << up.out << up.err;
  EXPECT_EQ(world.CommittedVersion(), std::to_string(testing::kEpochs));
}

}  // namespace
}  // namespace weft
