#include "tests/testing/local_cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"

namespace weft::testing {
namespace {

std::string BuildFolder() {
  const char* const folder = std::getenv("WEFT_BINARY_DIR");
  return folder != nullptr ? absl::StrCat(folder, "/bin") : cli::ProgramFolder();
}

}  // namespace

std::string LocalCluster::Program(const std::string& name) {
  return absl::StrCat(BuildFolder(), "/", name);
}

std::string LocalCluster::LockServerOf(const std::string& folder) {
  const auto text = ReadFile(folder + "/addresses/lock-server");
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

LocalCluster::LocalCluster(const Options& options) : options_(options) {
  cli::ClusterProcesses::Options processes;
  processes.programs = BuildFolder();
  processes.data_dir = options.folder;
  processes.config = options.config;
  processes.overrides = options.overrides;
  processes.trainers = options.trainers;
  processes.partition_servers = options.partition_servers;
  processes.param_servers = options.param_servers;
  processes.store = options.store;
  processes.threads = 1;
  processes.on_event = options.on_event;
  processes.restart_failed_servers = options.restart_failed_servers;
  processes.on_launch = options.on_launch;
  auto started = cli::ClusterProcesses::Start(std::move(processes), &signals_);
  EXPECT_TRUE(started.ok()) << started.status() << "\n" << Logs();
  if (!started.ok()) return;
  processes_ = *std::move(started);
  GrpcOperatorClient::Options lock;
  lock.address = processes_->lock_server();
  lock.security = options.security;
  lock.retry.patience = absl::Milliseconds(200);  // it may have been killed: look after it again
  auto client = GrpcOperatorClient::Create(std::move(lock));
  EXPECT_TRUE(client.ok()) << client.status();
  if (client.ok()) lock_server_ = *std::move(client);
}

LocalCluster::~LocalCluster() = default;

v1::GetRunStateResponse LocalCluster::Await(const std::string& what, const Condition& condition,
                                            absl::Duration within) {
  const absl::Time deadline = absl::Now() + within;
  v1::GetRunStateResponse last;
  while (absl::Now() < deadline) {
    const absl::Status status = processes_->Supervise();
    EXPECT_TRUE(status.ok()) << status;
    const auto state = lock_server_->GetRunState(true, last.revision(), absl::Milliseconds(200));
    if (IsTransient(state.status()) && status.ok()) continue;
    EXPECT_TRUE(state.ok()) << state.status();
    if (!status.ok() || !state.ok()) break;
    last = *state;
    if (condition(last)) return last;
    if (last.phase() == v1::RUN_PHASE_FAILED) break;
  }
  ADD_FAILURE() << "waited in vain: " << what << "\n" << last.DebugString() << Logs();
  return last;
}

v1::GetRunStateResponse LocalCluster::AwaitEnd() {
  return Await("the run's end", [](const v1::GetRunStateResponse& state) {
    if (state.phase() != v1::RUN_PHASE_DONE || state.manifests().empty()) return false;
    for (const v1::ManifestInfo& manifest : state.manifests()) {
      if (!manifest.committed()) return false;
    }
    return true;
  });
}

std::string LocalCluster::Logs() const {
  std::string logs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder + "/logs", error)) {
    absl::StrAppend(&logs, "--- ", entry.path().filename().string(), "\n",
                    cli::LastLines(entry.path().string(), 25), "\n");
  }
  return logs;
}

}  // namespace weft::testing
