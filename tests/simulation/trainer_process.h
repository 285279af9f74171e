// TrainerProcess is a trainer as a state machine: what TrainingLoop, BucketPipeline and the cluster
// clients do with threads, done in events. It follows the rules of docs/protocol.md and trains by
// counting (graph.h). The places, the fence and the exchange of parameters are the real ones.
//
// Whatever runs on for a session that is over finds that it is not `session_` any more, and ends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "services/common/place_directory.h"
#include "services/common/retry.h"
#include "services/common/run_fence.h"
#include "tests/simulation/exchange.h"
#include "tests/simulation/graph.h"
#include "tests/simulation/lock_process.h"
#include "tests/simulation/partition_process.h"
#include "tests/simulation/process.h"

namespace weft::simulation {

class TrainerProcess : public Process {
 public:
  struct Options {
    Duration lease = Seconds(6);
    int64_t shard_bytes = 1 << 20;
    size_t resident = 2;
    size_t message_bytes = kMaxParamMessageBytes;
    // Weakened rules:
    bool names_trained_copies = false;   // a copy keeps its name when its grant is lost
    bool trains_what_is_stored = false;  // no copy is taken of what is being stored
    bool releases_unflushed = false;     // parameters are flushed some other time
  };
  struct Figures {
    int64_t sessions = 0;
    int64_t trained_edges = 0;
    std::vector<int64_t> trained;  // of these, by bucket
    int64_t releases = 0;
  };

  TrainerProcess(World* world, std::string name, double clock_rate, const Graph* graph,
                 const Addresses* addresses, const Options& options);

  // Ends as by SIGTERM: what is finished is handed in, what is not is given back.
  void Terminate() { stop_ = true; }
  // The run was done, and this trainer has left.
  bool finished() const { return finished_; }
  // Somebody starts it once more.
  void StartAgain() {
    finished_ = false;
    restarts = true;
    Start();
  }
  const Figures& figures() const { return figures_; }

 protected:
  absl::Status Begin() override;
  void End() override;

 private:
  using Table = std::shared_ptr<EmbeddingPartition>;
  struct Session {
    Incarnation incarnation = 0;
    RunContext context;
    uint64_t number = 1;  // of the next acquire
    std::set<Token> tokens;
    bool ended = false;  // the lock server has said so
    bool busy = false;   // something is being read or trained
  };
  using SessionPtr = std::shared_ptr<Session>;
  using GrantPtr = std::shared_ptr<const Grant>;
  struct Named {
    Token token = kInitialToken;
    Table data;                            // null: being read, or it could not be
    std::function<void(Table)> when_read;  // null table: it could not be
  };
  struct Job {
    Token token = kInitialToken;
    std::vector<std::pair<PartitionKey, Table>> sources;
    std::vector<BucketStats> buckets;
  };
  using JobPtr = std::shared_ptr<Job>;
  struct Transfer;
  using TransferPtr = std::shared_ptr<Transfer>;
  using Then = std::function<void()>;

  // Sessions (trainer_process.cc).
  template <typename T>
  void Ask(const SessionPtr& session, Duration wait, LockProcess::RunCall<T> call, Reply<T> done);
  void Register();
  void HeartbeatLater(const SessionPtr& session);
  void Heartbeat(const SessionPtr& session, Reply<RunPhase> done);
  void AwaitPrepared(const SessionPtr& session);
  void JoinParameters(const SessionPtr& session);
  // The session has ended, or is of no use any more: forgets it, leaves it, begins another one.
  void Lost(const SessionPtr& session);
  void Leave(const SessionPtr& session, Then then);

  // Grants.
  void Acquire(const SessionPtr& session);
  void Load(const SessionPtr& session, const GrantPtr& grant, size_t index);
  void Loaded(const SessionPtr& session, const GrantPtr& grant, size_t index, Table table);
  void Prefetch(const SessionPtr& session, const Grant& grant);
  Table Writable(PartitionKey key, Table copy);
  void Train(const SessionPtr& session, const GrantPtr& grant, size_t index,
             std::vector<BucketStats> trained);
  void Finish(const SessionPtr& session, const GrantPtr& grant, std::vector<BucketStats> trained);
  void FinishUp(const SessionPtr& session);
  void Flush(const SessionPtr& session, const JobPtr& job);

  // Moving partitions (trainer_transfers.cc).
  void Read(const SessionPtr& session, const PartitionVersion& version, Reply<Table> done);
  void ReadShard(const SessionPtr& session, const TransferPtr& read);
  void ReadElsewhere(const SessionPtr& session, const TransferPtr& read, const absl::Status& why);
  void ReadFailed(const SessionPtr& session, const TransferPtr& read);
  void ReportAll(const SessionPtr& session, Token grant, const TransferPtr& read,
                 const VersionInfo& where, size_t index);
  void Store(const SessionPtr& session, const JobPtr& job, size_t index);
  void StoreShard(const SessionPtr& session, const JobPtr& job, const TransferPtr& store);
  void Release(const SessionPtr& session, const JobPtr& job);

  void Retry(Then then) { After(world_->Between(Milliseconds(25), Seconds(1)), std::move(then)); }

  const Graph* const graph_;
  const Addresses* const addresses_;
  const Options options_;
  bool finished_ = false;
  Figures figures_;

  // Of this life.
  std::unique_ptr<RunFence> fence_;
  std::unique_ptr<PlaceDirectory> places_;
  SessionPtr session_;
  bool stop_ = false;
  uint64_t progress_ = 0;
  std::map<PartitionKey, Table> training_;
  std::map<PartitionKey, Token> bases_;  // of what is in training
  std::map<PartitionKey, std::shared_ptr<Named>> named_;
  std::unique_ptr<SharedState> live_;
  std::unique_ptr<ParameterSync> parameters_;
  std::shared_ptr<Exchange> exchange_;
  JobPtr storing_;
  Then when_stored_;
};

}  // namespace weft::simulation
