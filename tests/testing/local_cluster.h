// LocalCluster is a cluster of real processes on this machine, for tests: loopback, free ports, its
// folder in that of the test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/cluster_processes.h"
#include "services/common/shutdown_signals.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::testing {

class LocalCluster {
 public:
  struct Options {
    std::string config;  // run.json
    std::vector<std::string> overrides;
    std::string folder;  // of its data and logs
    int trainers = 2;
    int partition_servers = 2;
    int param_servers = 1;
    std::string store = "rocksdb";
    // As ClusterProcesses::Options.
    std::function<void(const std::string& event)> on_event = nullptr;
    bool restart_failed_servers = false;
    std::function<void(const std::string&, std::vector<std::string>*)> on_launch = nullptr;
    SecurityOptions security = {};  // of the test's own calls
  };

  // The path of a program of the build.
  static std::string Program(const std::string& name);
  // The address in the data folder of a cluster; empty before there is one.
  static std::string LockServerOf(const std::string& folder);

  // Test failures say what went wrong.
  explicit LocalCluster(const Options& options);
  ~LocalCluster();

  bool ok() const { return processes_ != nullptr; }
  cli::ClusterProcesses& processes() { return *processes_; }
  GrpcOperatorClient& lock_server() { return *lock_server_; }

  using Condition = std::function<bool(const v1::GetRunStateResponse&)>;
  // Looks after the processes until the state of the run fits; a run that has failed, a process
  // that has ended by itself, or a time that is over fail the test. Killed processes are started
  // again.
  v1::GetRunStateResponse Await(const std::string& what, const Condition& condition,
                                absl::Duration within = absl::Minutes(2));
  // Done, and its last version whole.
  v1::GetRunStateResponse AwaitEnd();

  // Everything its processes have written, for messages.
  std::string Logs() const;

 private:
  ShutdownSignals signals_;
  std::unique_ptr<cli::ClusterProcesses> processes_;
  std::unique_ptr<GrpcOperatorClient> lock_server_;
  const Options options_;
};

}  // namespace weft::testing
