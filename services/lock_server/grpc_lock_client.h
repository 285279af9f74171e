// GrpcLockClient is a trainer's side of the lock server: its session, kept alive by a thread of its
// own, and LockClient's calls within it.
//
// A session begins with EnsureSession and ends when the lock server says so: any call gives Aborted
// then, once, and the next EnsureSession (or AcquireBucket) begins a new one with a new
// incarnation. No local clock decides about it: a trainer that cannot reach the lock server goes
// on, and learns the truth later.
//
// Calls that find nobody, or get no answer in time, are repeated with the same bytes until patience
// is over; the error then names the lock server, its address and the cause. A run that waits for
// its edges is no outage: its lock server answers, and is asked again as long as it does.
//
// Thread-safety: all methods may be called from any thread; AcquireBucket and EnsureSession by one
// at a time. Threads: one for heartbeats, while there is a session.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/common/cluster_types.h"
#include "services/common/log_event.h"
#include "services/common/mutex.h"
#include "services/common/place_directory.h"
#include "services/common/rpc/credentials.h"
#include "services/common/rpc/unary_call.h"
#include "services/common/run_fence.h"
#include "services/lock_server/lock_client.h"
#include "weft/v1/lock_service.grpc.pb.h"

namespace weft {

class GrpcLockClient : public LockClient {
 public:
  struct Options {
    std::string address;  // of the lock server, host:port
    std::string name;     // a label of this trainer
    RetryOptions retry;
    SecurityOptions security;
    absl::Duration timeout = absl::Seconds(10);  // of one attempt, beside what a call may wait
  };

  // What does not change while the run lives, as the lock server keeps it.
  struct RunInfo {
    struct DataSet {
      std::string edge_path;
      uint64_t digest = 0;
    };
    std::string config_json;
    uint64_t seed = 0;
    std::vector<std::string> entity_types;
    std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]
    int64_t num_dynamic_relations = 0;
    std::vector<DataSet> data_sets;
    Token edges_token = kInitialToken;  // of the edges that partition servers hold
    int64_t largest_bucket = 0;         // edges
    int64_t largest_bucket_bytes = 0;   // of the edges that partition servers hold
  };

  struct Session {
    RunContext context;
    Incarnation incarnation = 0;
    std::string name;  // with a suffix when it was taken
    RunInfo run;
    absl::Duration lease;
  };

  // `places` is told what the lock server says of versions and servers; must outlive this object.
  // Errors: InvalidArgument, FailedPrecondition for an address that cannot be used.
  static absl::StatusOr<std::unique_ptr<GrpcLockClient>> Create(Options options,
                                                                PlaceDirectory* places);
  // Ends the calls and the heartbeats; does not leave.
  ~GrpcLockClient() override;

  // The session; registers when there is none, or it has ended.
  // Errors: FailedPrecondition: another run than before, or versions or data sets that are not the
  // run's. Unavailable after the patience.
  absl::StatusOr<Session> EnsureSession();

  // Returns when the run's servers are all there, with what they begin or go on with.
  // Errors: FailedPrecondition: the run has failed. Aborted, Unavailable, Cancelled
  // (StopAcquiring).
  absl::Status AwaitPrepared();

  // Has the lock server compare the edges that this trainer reads with the run's, now and in later
  // sessions. Errors: FailedPrecondition when they differ; as EnsureSession.
  absl::Status CheckDataSets(std::vector<RunInfo::DataSet> data_sets);

  // Shown by the heartbeats: batches trained, bytes moved.
  void AddProgress(uint64_t amount) { progress_.fetch_add(amount, std::memory_order_relaxed); }

  // Aborted once the session has ended, with the reason.
  absl::Status SessionStatus() ABSL_LOCKS_EXCLUDED(mu_) { return Live().status(); }

  // How many sessions have begun.
  int64_t sessions() const { return sessions_.load(std::memory_order_relaxed); }

  // For those who call with what this process knows of the run's life.
  RunFence* fence() { return &fence_; }

  absl::StatusOr<AcquireResult> AcquireBucket(const AcquireRequest& request) override;
  absl::StatusOr<ReleaseResult> ReleaseBucket(const ReleaseRequest& request) override;
  absl::Status AbandonBucket(Token token) override;
  absl::Status ReportFailure(Token token, const TrainingFailure& failure) override;
  absl::Status Leave() override;

  // The base of a live grant cannot be read at `place`. Answers with the places that are left.
  absl::StatusOr<std::vector<Place>> ReportUnreadable(Token token, const PartitionVersion& version,
                                                      uint32_t shard, const Place& place);

  // A bucket that is waited for is not wanted any more: AcquireBucket gives Cancelled.
  void StopAcquiring() { acquiring_.Cancel(); }
  // Ends all calls with Cancelled.
  void Cancel();

 private:
  // One session, from its registration to its end. Calls keep it while they use it.
  struct SessionState {
    Session session;
    std::atomic<bool> begun = false;
    std::atomic<bool> ended = false;
    // The loop's numbers go on from session to session; the lock server's begin with 1.
    uint64_t number_offset = 0;
    bool numbered = false;
    Mutex mu;
    absl::btree_set<Token> tokens ABSL_GUARDED_BY(mu);
    absl::Status failure ABSL_GUARDED_BY(mu);  // why it ended
  };
  using SessionPtr = std::shared_ptr<SessionState>;

  GrpcLockClient(Options options, PlaceDirectory* places,
                 std::unique_ptr<v1::LockService::Stub> stub);

  absl::StatusOr<SessionPtr> Register();
  absl::StatusOr<v1::RegisterResponse> SendRegister(const SessionPtr& state);
  // The session; Aborted when it has ended, or none began.
  absl::StatusOr<SessionPtr> Live() ABSL_LOCKS_EXCLUDED(mu_);
  void End(const SessionPtr& state, const absl::Status& why);
  absl::Status TakeContext(const v1::RunContext& context);
  // Says in the log why a session cannot begin yet.
  void TellWaiting(absl::string_view why);
  // Says in the log what is waited for; the same now and then.
  void Tell(const LogEvent& waiting) ABSL_LOCKS_EXCLUDED(mu_);

  // Fills in context and incarnation, and calls until there is an answer.
  template <typename Request, typename Response>
  absl::Status Call(const SessionPtr& state, Request* request, Response* response,
                    absl::Duration timeout, CallGroup* group, StartUnaryCall start);

  void StartHeartbeats(const SessionPtr& state);
  void StopHeartbeats();
  void HeartbeatForEver(const SessionPtr& state);
  absl::StatusOr<v1::RunPhase> Heartbeat(const SessionPtr& state, uint64_t* known_servers,
                                         absl::Duration timeout);

  const Options options_;
  PlaceDirectory* const places_;
  const std::unique_ptr<v1::LockService::Stub> stub_;
  RunFence fence_;
  std::atomic<uint64_t> progress_ = 0;
  std::atomic<int64_t> sessions_ = 0;

  CallGroup calls_;
  CallGroup acquiring_;

  mutable Mutex mu_;
  SessionPtr state_ ABSL_GUARDED_BY(mu_);
  std::vector<RunInfo::DataSet> data_sets_ ABSL_GUARDED_BY(mu_);
  std::string told_ ABSL_GUARDED_BY(mu_);  // what was waited for
  std::chrono::steady_clock::time_point told_at_ ABSL_GUARDED_BY(mu_);

  std::thread heartbeats_;  // of the caller of EnsureSession
  std::unique_ptr<CancelFlag> heartbeats_end_;
};

}  // namespace weft
