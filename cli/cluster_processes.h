// The processes of a cluster on this machine: on loopback, on ports that are free, with their logs
// in a folder. A process that was killed is started again, servers on their old ports; one that
// ends by itself, with an error, is told.
//
//   data_dir/lock-server/, partition-server-0/, ...   what each keeps
//   data_dir/logs/NAME.log, data_dir/addresses/NAME
//   data_dir/metrics/NAME (address), data_dir/metrics.json (all of them, for Prometheus' file_sd)
//
// Thread-safety: not thread-safe; on a thread that lives as long as the process.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/child_process.h"
#include "services/common/cluster_types.h"
#include "services/common/shutdown_signals.h"

namespace weft::cli {

class ClusterProcesses {
 public:
  struct Options {
    std::string programs;  // the folder of weft-lock-server and its fellows
    std::string data_dir;
    std::string config;
    std::vector<std::string> overrides;
    int trainers = 2;
    int partition_servers = 2;
    int param_servers = 1;
    std::string store = "rocksdb";  // or memory
    int threads = 1;                // of each trainer
    // Beside those of its own, given to every process.
    std::vector<std::string> arguments;
    absl::Duration start_within = absl::Minutes(1);
    // Told of what happens to processes; may be null.
    std::function<void(const std::string& event)> on_event;
    // Servers that end with an error are started again, too.
    bool restart_failed_servers = false;
    // May change the arguments that a process is about to be started with; may be null.
    std::function<void(const std::string& name, std::vector<std::string>* arguments)> on_launch;
  };

  // Starts everything, and returns when all servers can be called. `signals`: a request ends the
  // wait with Cancelled. Both must outlive this object.
  // Errors: of starting, or of a process that ended at once (with the end of its log).
  static absl::StatusOr<std::unique_ptr<ClusterProcesses>> Start(Options options,
                                                                 ShutdownSignals* signals);
  // Stop.
  ~ClusterProcesses();

  const std::string& lock_server() const { return members_.front().address; }
  std::string LogFolder() const { return options_.data_dir + "/logs"; }
  std::string MetricsTargets() const { return options_.data_dir + "/metrics.json"; }
  // Where the process of this name tells its metrics; empty: not known yet.
  std::string MetricsAddress(const std::string& name) const;

  // Looks after all of them once. Errors: a server has ended by itself, or the last trainer has,
  // with an error.
  absl::Status Supervise();
  int RunningTrainers();
  absl::Status AddTrainer();
  // The process of this name, as "trainer-0"; null when there is none.
  ChildProcess* Find(const std::string& name);
  std::vector<std::string> Names() const;
  // Asks the process to end; Supervise starts it again when it has.
  void Restart(const std::string& name);

  // Trainers first, so that they hand in what is finished; the lock server last.
  void Stop();

 private:
  struct Member {
    ServerRole role = ServerRole::kLock;
    std::string name;
    std::vector<std::string> arguments;
    std::string address;  // of servers
    std::unique_ptr<ChildProcess> process;
    std::chrono::steady_clock::time_point started;
    bool ended = false;       // and is not to be started again
    bool restarting = false;  // it was asked to end
  };

  ClusterProcesses(Options options, ShutdownSignals* signals)
      : options_(std::move(options)), signals_(signals) {}

  absl::Status StartAll();
  void AddServer(ServerRole role, const std::string& name, const std::string& program,
                 std::vector<std::string> arguments);
  absl::Status Launch(Member* member);
  absl::Status AwaitAddress(Member* member);
  absl::Status LookAfter(Member* member);
  std::string AddressFile(const Member& member) const;
  std::string MetricsFile(const std::string& name) const;
  std::vector<std::string> MetricsArguments(const std::string& name) const;
  // The processes that run, in MetricsTargets(); written when they have changed.
  absl::Status WriteMetricsTargets();
  std::string LogPath(const std::string& name) const;
  absl::Status EndedEarly(const Member& member) const;
  void StopRole(ServerRole role, absl::Duration grace);
  void Tell(const std::string& event) const;

  const Options options_;
  ShutdownSignals* const signals_;
  std::vector<Member> members_;  // the lock server first
  int next_trainer_ = 0;
  std::string metrics_targets_;  // as written last
};

}  // namespace weft::cli
