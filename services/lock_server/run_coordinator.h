// RunCoordinator is the run: which pass it is in, who trains what, which versions are current, what
// has been trained to the edge, and when it is over. It is what a lock server is, without sockets,
// files and waiting.
//
// States: RUNNING(pass) -> pass complete (its checkpoint is to be committed) -> RUNNING(pass + 1)
// ... -> done (all epochs, or early stopping); from RUNNING also failed(reason). Grants are made in
// RUNNING only. A failed run goes on when it is started anew.
//
// Every change is durable in the RunStore before anybody sees it. A release is a compare-and-set:
// the versions that the grant started from must still be current.
// Thread-safety: all methods may be called from any thread. A durable write happens under the lock:
// the order of changes is the order in the store.
// Restart: everything released is kept, every grant and session is over; tokens never repeat,
// because each start has a term of its own (token = term x 2^40 + n).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/mutex.h"
#include "services/common/run_config.h"
#include "services/common/store_sync.h"
#include "services/lock_server/bucket_scheduler.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/pass_accounting.h"
#include "services/lock_server/run_state.h"
#include "services/lock_server/run_store.h"

namespace weft {

// What is to be trained, and how: constant while a coordinator lives.
struct RunPlan {
  int num_lhs = 1;  // partitions on each side
  int num_rhs = 1;
  std::vector<BucketScheduler::PartitionedType> partitioned_types;
  BucketOrder bucket_order = BucketOrder::kInsideOut;
  int resident_partitions = 2;  // of the one trainer; above 2, BETA's order
  double commit_seconds = 60;
  // How fast edges are trained, for commit_seconds. A figure of the configuration makes grants a
  // function of it alone, and runs repeatable; unset: as measured in this process.
  std::optional<double> edges_per_second;
  int num_epochs = 1;
  // By edge path: edges per bucket, [lhs partition, rhs partition], of all edge chunks.
  std::vector<std::vector<int64_t>> bucket_edges;
  EarlyStoppingOptions early_stopping;
};

// A complete pass, whose checkpoint is to be written.
struct CompletePass {
  int64_t version = 0;    // of the checkpoint: the number of passes that are complete
  PassPosition position;  // of this pass
  bool ends_epoch = false;
  std::vector<DoneBucket> buckets;         // in the order of their releases; not the empty ones
  std::vector<PartitionVersion> versions;  // every partition; initial ones too
};

struct RunProgress {
  PassPosition position;
  int num_epochs = 0;
  int64_t buckets = 0;
  int64_t buckets_done = 0;
  int64_t edges = 0;  // of this pass
  int64_t edges_done = 0;
  int64_t epoch_edges = 0;  // of all passes of an epoch
  bool done = false;
  bool stopped_early = false;
  std::optional<TrainingFailure> failure;
  EarlyStoppingState early_stopping;
};

class RunCoordinator {
 public:
  using SessionId = BucketScheduler::SessionId;

  // Whether every bucket of the pass at state.position is done.
  static bool PassIsComplete(const RunPlan& plan, const RunState& state);

  // Starts the run from `state` in a new term, durably. `store` must outlive the coordinator.
  // Errors: the store's.
  static absl::StatusOr<std::unique_ptr<RunCoordinator>> Start(RunPlan plan, RunState state,
                                                               RunStore* store);

  // A new trainer process.
  SessionId Register();

  // Does not wait: no grant when nothing is grantable now. The same number gets the same answer.
  // A session has at most two grants: one in training, one being stored.
  // Errors:
  //   Aborted: the session has ended.
  //   FailedPrecondition: the run has failed (the message says why).
  absl::StatusOr<AcquireResult> Acquire(SessionId session, const AcquireRequest& request);

  // Errors:
  //   Aborted: the session or the grant has ended, or a version it started from is not current.
  //   FailedPrecondition: a partition of the grant is not stored; store it and release again.
  //   InvalidArgument: not the buckets of the grant.
  //   DataLoss: the edges do not add up; the run has failed.
  // The last 8 answers of a session are repeated when they are asked for again.
  absl::StatusOr<ReleaseResult> Release(SessionId session, const ReleaseRequest& request);

  // Gives back the grant, and the session's later ones that start from its versions.
  absl::Status Abandon(SessionId session, Token token);
  // Errors: Aborted when the grant has ended.
  absl::Status ReportFailure(SessionId session, Token token, const TrainingFailure& failure);
  absl::Status Leave(SessionId session);

  // The pass whose checkpoint is to be written; none while a pass is under way or the run is done.
  std::optional<CompletePass> complete_pass() const;
  // The checkpoint `version` of the complete pass is what readers see now: goes on to the next
  // pass. Idempotent.
  absl::Status PassCommitted(int64_t version);
  // Versions whose files can go. They are named until FilesRemoved.
  std::vector<int64_t> obsolete_versions() const;
  void FilesRemoved(const std::vector<int64_t>& versions);

  KeepList keep_list() const;
  RunProgress progress() const;

 private:
  struct LiveGrant {
    SessionId session = 0;
    std::vector<Bucket> buckets;
    std::vector<PartitionVersion> bases;
  };
  struct Outcome {
    Token token = kInitialToken;
    absl::StatusOr<ReleaseResult> result;
  };
  struct Session {
    uint64_t number = 0;  // of the last acquire that was answered with a grant
    std::optional<Grant> grant;
    std::deque<Outcome> outcomes;
    std::vector<Token> grants;  // live, oldest first
  };

  RunCoordinator(RunPlan plan, RunState state, RunStore* store);

  void BeginPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // 0 when it is not known yet.
  double EdgesPerSecond() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Done() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<Grant> MakeGrant(SessionId id, const AcquireRequest& request, Session* session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddHint(SessionId id, const Session& session, const std::vector<PartitionKey>& in_memory,
               Grant* grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Token Base(const Session& session, PartitionKey key) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRelease(const ReleaseRequest& request, const LiveGrant& grant) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<ReleaseResult> ReleaseLive(const ReleaseRequest& request, Session* session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(const RunChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndGrant(Token token, bool done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Void(Token token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RunPlan plan_;
  RunStore* const store_;

  mutable Mutex mu_;
  RunState state_ ABSL_GUARDED_BY(mu_);
  BucketScheduler scheduler_ ABSL_GUARDED_BY(mu_);
  std::optional<PassAccounting> accounting_ ABSL_GUARDED_BY(mu_);
  Token last_token_ ABSL_GUARDED_BY(mu_) = kInitialToken;
  SessionId last_session_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<SessionId, Session> sessions_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<Token, LiveGrant> grants_ ABSL_GUARDED_BY(mu_);
  // Of what was trained in this process: says how long a bucket will take.
  int64_t trained_edges_ ABSL_GUARDED_BY(mu_) = 0;
  double trained_seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace weft
