// ChaosRun trains a small graph on a cluster of real processes and disturbs these at random: each
// is killed, stopped for longer than a lease, or asked to end, and started again; connections are
// stalled or cut. What the run has committed is compared with the graph all the while.
//
// What is done to whom is drawn from a seed; when it is done follows the progress of the run.
// Thread-safety: not thread-safe. Faults of the run are failures of the test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/random.h"
#include "tests/chaos/fault_proxy.h"
#include "tests/integration/train_world.h"
#include "tests/testing/local_cluster.h"

namespace weft::testing {

// The seed of a test's disturbances: WEFT_TEST_SEED, else the clock's. Prints it.
uint64_t ChaosSeed();

class ChaosRun {
 public:
  struct Options {
    std::string name = "chaos";  // folder in the world: its cluster, and what it has trained
    std::string store = "rocksdb";
    int trainers = 2;
    int partition_servers = 2;
    int param_servers = 1;
    uint64_t seed = 1;
    int kills = 0;         // spread over the run; other disturbances come in between
    bool proxies = false;  // between trainer-0 and the lock server, and before partition-server-0
    absl::Duration lease = absl::Seconds(2);
    absl::Duration within = absl::Minutes(2);
    bool may_rewind = false;                  // what is lost may be trained again
    bool may_restart = false;                 // servers may end with an error
    std::vector<std::string> overrides = {};  // of the configuration
  };

  // `world` must outlive this object.
  ChaosRun(const TrainWorld& world, const Options& options);
  ~ChaosRun();

  bool ok() const { return cluster_->ok(); }
  LocalCluster& cluster() { return *cluster_; }

  // Disturbs the run until it is over.
  void Run();
  // Until `condition` holds or the run is over, without disturbing it. The state then.
  v1::GetRunStateResponse Await(const std::string& what, const LocalCluster::Condition& condition);
  // To the end without disturbing it (further). Checks what is committed.
  void Finish();

  // --- What can be done to a process.
  void Kill(const std::string& name);
  // For so long; others go on being looked after.
  void Stop(const std::string& name, absl::Duration duration);
  void Restart(const std::string& name);
  void Stall(const std::string& proxy, absl::Duration duration);
  void Cut(const std::string& proxy);

  // Of the newest version, which is pulled; after Finish. Mean reciprocal rank of all edges.
  double Mrr();

  int kills() const;
  FaultProxy& proxy(const std::string& name) { return *proxies_.at(name); }
  uint64_t generation() const { return state_.context().generation(); }
  // One line: seed, what was done to whom, passes, edges, generation.
  std::string Summary() const;
  std::string File(const std::string& name) const;

 private:
  enum class Action { kKill, kStop, kRestart, kStall, kCut };

  void Step();
  void Continue(const std::string& name);
  bool Over() const;
  int64_t EdgesDone() const;
  int64_t EdgesInAll() const;
  void FillDeck();
  void DisturbOnce();
  void CheckVersion(const v1::GetCheckpointResponse& checkpoint);
  void OnLaunch(const std::string& name, std::vector<std::string>* arguments);
  void OnEvent(const std::string& event);
  void Say(const std::string& what) const;

  const TrainWorld& world_;
  const Options options_;
  const absl::Time begun_ = absl::Now();
  RandomStream random_;
  std::map<std::string, std::unique_ptr<FaultProxy>> proxies_;
  uint16_t proxied_port_ = 0;  // of partition-server-0
  std::unique_ptr<LocalCluster> cluster_;
  v1::GetRunStateResponse state_;
  std::vector<std::pair<Action, std::string>> deck_;
  std::map<std::string, absl::Time> stopped_;  // until when; also proxies
  std::map<std::string, int> done_;            // "kill trainer": how often
  std::set<int64_t> versions_;                 // checked
  int64_t edges_checked_ = 0;
  int64_t last_version_ = 0;
};

}  // namespace weft::testing
