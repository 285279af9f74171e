// RunCoordinator is the run: which pass it is in, who trains what, which versions are current and
// where they lie, what has been trained to the edge, to what it can go back, and when it is over.
// It is what a lock server is, without sockets, files and waiting.
//
// States: PREPARING -> RUNNING(pass) -> the pass is complete (its checkpoint is to be written, or
// the parameter servers cut) -> RUNNING(pass + 1) ... -> DONE (all epochs, or early stopping); from
// RUNNING also FAILED(reason), PAUSED and, in a cluster, REWINDING. Grants are made in RUNNING
// only. A failed run goes on when it is started anew (one machine), or after a rollback (cluster).
//
// A release is a compare-and-set: the versions that the grant started from must still be current.
// Everything is written to the RunStore before it changes the state; what callers are told is
// durable after the next Sync (stores of one machine sync at once).
// Restart: on one machine every grant and session is over; in a cluster they live on, with a full
// lease. Tokens never repeat, because each start has a term of its own (token = term x 2^40 + n).
//
// Thread-safety: all methods may be called from any thread.
// Errors of all calls: those of the store, after which it is to be started anew.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/clock.h"
#include "services/common/log_event.h"
#include "services/common/mutex.h"
#include "services/common/store_sync.h"
#include "services/lock_server/bucket_scheduler.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/order_book.h"
#include "services/lock_server/pass_accounting.h"
#include "services/lock_server/run_counters.h"
#include "services/lock_server/run_metrics.h"
#include "services/lock_server/run_plan.h"
#include "services/lock_server/run_state.h"
#include "services/lock_server/run_store.h"
#include "services/lock_server/run_views.h"
#include "services/lock_server/session_leases.h"

namespace weft {

class RunCoordinator {
 public:
  using SessionId = weft::SessionId;

  // Whether every bucket of the pass at state.position is done.
  static bool PassIsComplete(const RunPlan& plan, const RunState& state);

  // Starts the run from `state` in a new term. `store` and `clock` must outlive the coordinator.
  static absl::StatusOr<std::unique_ptr<RunCoordinator>> Start(RunPlan plan, RunState state,
                                                               RunStore* store,
                                                               const Clock& clock = Clock::Real());

  // --- Any caller, in a cluster ---

  // Whether a call is one of this life of this run. A lower term than ours is: sessions survive
  // restarts.
  // Errors:
  //   FailedPrecondition: another run; or a later life of this run exists (then superseded()).
  //   Aborted: a lower generation: the run has gone back.
  absl::Status Check(const RunContext& context);
  RunContext context() const;
  // A later life of this run was met: this one must end.
  bool superseded() const;

  // --- Trainers ---

  // A new trainer of this process.
  SessionId Register();
  // A trainer's process; the same one gets the same session. Gives its name, with a suffix when it
  // is taken.
  // Errors: FailedPrecondition when it is of another version, or has other data.
  absl::StatusOr<std::string> Register(const Registration& registration);
  // Keeps the session alive. Gives those of `tokens` that are no live grants of the session.
  // Errors: Aborted when the session has ended.
  absl::StatusOr<std::vector<Token>> Heartbeat(SessionId session, const std::vector<Token>& tokens,
                                               uint64_t progress);

  // Does not wait: no grant when nothing is grantable now. The same number gets the same answer.
  // A session has at most two grants: one in training, one being stored.
  // Errors:
  //   Aborted: the session has ended.
  //   FailedPrecondition: the run has failed (the message says why).
  absl::StatusOr<AcquireResult> Acquire(SessionId session, const AcquireRequest& request);

  // Errors:
  //   Aborted: the session or the grant has ended, or a version it started from is not current.
  //   InvalidArgument: not the buckets of the grant, or shards that make no partition.
  //   FailedPrecondition: a partition of the grant is not stored, or not at enough places that are
  //     there now; store it and release again.
  //   Unavailable: a place is of a server's process that has not registered, and may be about to;
  //     for a lease time, then FailedPrecondition.
  //   DataLoss: the edges do not add up; the run has failed.
  // The last 8 answers of a session are repeated when they are asked for again.
  absl::StatusOr<ReleaseResult> Release(SessionId session, const ReleaseRequest& request);

  // Gives back the grant, and the session's later ones that start from its versions.
  absl::Status Abandon(SessionId session, Token token);
  // Errors: Aborted when the grant has ended.
  absl::Status ReportFailure(SessionId session, Token token, const TrainingFailure& failure);
  // The shard, of the base of a grant, cannot be read there: it is checked. Gives the places that
  // are left. Errors: Aborted when it is not a live grant's base.
  absl::StatusOr<std::vector<Place>> ReportUnreadable(SessionId session, Token token,
                                                      const ShardName& shard, const Place& place);
  absl::Status Leave(SessionId session);

  // --- Servers, in a cluster ---

  // Registers a server, takes what it reports, says what it is to do.
  // Errors:
  //   FailedPrecondition: it is retired, or a parameter server too many.
  //   Aborted: a newer incarnation of it has registered.
  absl::StatusOr<StoreInstructions> Sync(const StoreReport& report);

  // --- Edges that partition servers hold, in a cluster (proto/weft/v1/lock_service.proto) ---

  struct ImportTarget {
    Token token = kInitialToken;
    bool complete = false;
    int replicas = 1;
  };
  // The same content goes on where it was. `schema`: what the import was made with.
  // Errors:
  //   AlreadyExists: the run has other edges.
  //   FailedPrecondition: it has its edges in folders; or the import is of another configuration.
  absl::StatusOr<ImportTarget> BeginImport(const ImportedEdges& edges,
                                           const std::vector<std::string>& schema);
  // Errors:
  //   Aborted: another import has taken its place.
  //   InvalidArgument: no bucket of it, or of other shards than before.
  //   FailedPrecondition: a place is not registered or not durable.
  absl::Status AddEdges(Token token, const std::vector<VersionInfo>& buckets);
  // Errors: Aborted, as AddEdges; FailedPrecondition when buckets are missing.
  absl::Status CompleteImport(Token token);
  // The edges that the run waits for are there: it begins with a new coordinator.
  bool edges_arrived() const;

  // --- A checkpoint from outside, in a cluster (proto/weft/v1/lock_service.proto) ---

  struct PushTarget {
    Token token = kInitialToken;
    bool committed = false;
    int replicas = 1;
  };
  // The same request goes on where it was.
  // Errors: FailedPrecondition when the run is not paused or preparing, or waits for its edges.
  absl::StatusOr<PushTarget> BeginPush(const std::string& request_id);
  // Errors: Aborted (another push, or the run went on), InvalidArgument, and as Release for places.
  absl::Status AddPushed(Token token, const std::vector<VersionInfo>& versions);
  // The run goes on from it. False: memory stores do not have all of it on disk yet; ask again.
  // Errors: Aborted, as AddPushed; FailedPrecondition when something is missing or lost;
  // InvalidArgument when the position is none of this run.
  absl::StatusOr<bool> CommitPush(const PushedCheckpoint& pushed);

  // --- Time ---

  // Ends sessions that are silent or stalled, gives up servers that are silent for too long, begins
  // manifests. Call it every SessionLeases::kTick.
  absl::Status Tick();

  // --- Operators, in a cluster. Errors: NotFound when there is no such version or store. ---

  absl::Status Pause(bool paused);
  absl::Status Preserve(int64_t version, bool preserved);
  // Keeps a version for `ttl` after the last call with this id.
  absl::Status Pin(const std::string& request_id, int64_t version, SteadyTime::duration ttl);
  void Unpin(const std::string& request_id);
  // Goes back to a version (0: the beginning). FailedPrecondition: it is not whole.
  absl::Status Rollback(const std::string& request_id, int64_t version);
  absl::Status ForgetStore(StoreId store);
  absl::Status ReportEvaluation(int64_t version, const std::string& metric, double value);
  // 0: the newest one.
  absl::StatusOr<CheckpointView> Checkpoint(int64_t version) const;
  RunView View(bool with_buckets) const;
  // Of this moment; it may not be synced yet.
  RunMetrics metrics() const;

  // --- The owner on one machine ---

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
  ServerList servers() const;
  RunPhase phase() const;
  // What keeps a run of a cluster from training, as "waits for servers: ...", by role and address,
  // and why; for people. Empty: nothing.
  std::string waits_for() const;
  // A copy of all that is durable.
  RunState state() const;

  // Grow when: something may have become grantable; a server may have something to do; anything
  // changed that View shows.
  uint64_t grant_revision() const;
  uint64_t sync_revision() const;
  uint64_t view_revision() const;
  // What happened since the last call, for the log, one line each.
  std::vector<LogEvent> TakeEvents();

 private:
  // What is known of a server while both live.
  struct ServerLife {
    SteadyTime heard;
    SteadyTime lost;  // when it was last said to be silent for too long
    uint64_t free_bytes = 0;
    ParamServerState params;
    bool reported = false;  // since this start
    // At its last keep list.
    uint64_t swept = 0;         // garbage_
    int64_t dropped_bytes = 0;  // of the place table
    std::optional<SteadyTime> sweep_time;
  };
  struct PinnedVersion {
    Token manifest = kInitialToken;
    SteadyTime until;
  };

  RunCoordinator(RunPlan plan, RunState state, RunStore* store, const Clock& clock);

  bool Complete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Done() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Some manifest is not durable yet.
  bool ManifestPending() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  RunPhase Phase() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(const RunChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of sessions and grants: stored in a cluster only.
  absl::Status WriteLive(const RunChange& change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether anybody hears of an event of this level.
  bool Tells(LogEvent::Level level) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Event(LogEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // What is counted and told (run_coordinator_metrics.cc). Gives the status.
  absl::Status Refuse(CallRefusal why, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // While they are still there.
  void CountGrantEnds(const std::vector<Token>& tokens, GrantEnd why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<LogField> DescribeGrant(Token token) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Grants (run_coordinator_grants.cc).
  double EdgesPerSecond() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // 0: not known yet
  absl::StatusOr<std::optional<Grant>> MakeGrant(SessionId id, const AcquireRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether another session without a grant has found nothing, and no grant has ended since: what
  // such sessions may have is the same for all, and a thousand may wait.
  bool NothingIsFreeFor(SessionId id, const SessionRecord& session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Grant Describe(Token token, const GrantRecord& record) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddPlaces(const PartitionVersion& version, std::vector<VersionInfo>* places) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddHint(SessionId id, const SessionRecord& session,
               const std::vector<PartitionKey>& in_memory, Grant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Token Base(const SessionRecord& session, PartitionKey key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // While partitions are trained for the first time (run_coordinator_init_tree.cc): those of which
  // a grant of the session must touch one.
  std::optional<BucketScheduler::Trained> InitTree(const std::vector<PartitionKey>& resident)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a session that found no such bucket may have any.
  bool HasWaitedForTree(SessionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Ends of grants and sessions (run_coordinator_releases.cc).
  absl::Status RefuseEndedGrant(Token token) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRelease(const ReleaseRequest& request, const GrantRecord& grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckShards(const VersionInfo& version) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<ReleaseResult> ReleaseLive(SessionId id, const ReleaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The grant, and those of its session that start from its versions.
  std::vector<Token> WithSuccessors(Token token) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Void(const std::vector<Token>& tokens, GrantEnd why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status EndSession(SessionId id, SessionEnd why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Fail(TrainingFailure failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Edges (run_coordinator_edges.cc).
  bool AwaitsEdges() const { return plan_.cluster.has_value() && plan_.bucket_edges.empty(); }
  std::string MissingEdges() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // for people
  void AddEdgesOf(Bucket bucket, Grant* grant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckEdges(const VersionInfo& bucket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountLostEdges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Checkpoints from outside (run_coordinator_push.cc).
  // A run with an init_path begins with what is pushed.
  bool AwaitsPush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string MissingCheckpoint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // for people
  absl::Status MayPush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckPush(Token token) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsUsed(EntityTypeId type) const;  // by a relation; of partitioned types
  absl::Status CheckPosition(const PushedCheckpoint& pushed) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Passes, manifests, rewinds (run_coordinator_passes.cc).
  void BeginPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The position goes on; gives the statistics of the pass that is over.
  std::vector<DoneBucket> EndPass() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does what the state orders, in a cluster: called after every change.
  absl::Status Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CutIfAllHave(bool* again) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CommitManifests() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The newest manifest up to `newest` whose bytes partition servers have: it stays until a newer
  // one's are there.
  std::optional<Token> BackupOf(Token newest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Manifest* NewestOfThisLife() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RewindIfLost() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RewindToNewest(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Rewind(Token manifest, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsWhole(const Manifest& manifest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Manifest MakeManifest(int64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Servers (run_coordinator_servers.cc).
  const ServerRecord* FindServer(StoreId store) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsLive(const ServerRecord& server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<StoreId> StoresByRoom(uint64_t turn) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int Replicas() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the version lies there, at enough places. Errors: FailedPrecondition: store it again;
  // Unavailable: a place is of a process that may be about to register: ask again.
  absl::Status CheckPlaces(const VersionInfo& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayRegister(const Place& place, const ServerRecord* server)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RegisterServer(const ServerInfo& server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the server is to have a keep list now.
  bool SweepIsDue(const ServerInfo& server, const ServerLife& life) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeReport(const StoreReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllParams(bool (*has)(const ParamServerState&, const RunState&)) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  ServerList Servers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string MissingServers() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // for people
  std::string WaitsFor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Orders (run_coordinator_orders.cc).
  KeepList MakeKeepList() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::string RestoreKey(Generation generation);
  std::vector<OrderBook::Wanted> OrdersForParams(const ServerRecord& server, uint32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<OrderBook::Wanted> OrdersForPartitions(const ServerRecord& server)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Manifests lie at two servers, should this one's disk be lost.
  void AddManifestOrders(StoreId store, std::vector<OrderBook::Wanted>* orders)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of what the run goes on from after the manifest. Empty: too large to be sent.
  const std::string& BytesOf(const Manifest& manifest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeResults(const StoreReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // All its places are to be checked.
  void Suspect(const VersionInfo& version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status TakeResult(const ServerInfo& server, const OrderResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Operators (run_coordinator_operators.cc).
  ManifestView Describe(const Manifest& manifest) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // [lhs, rhs]; before a pass all are free, when the run is done all are.
  std::vector<BucketStatus> BucketStates() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RunPlan plan_;
  RunStore* const store_;
  const Clock& clock_;

  mutable Mutex mu_;
  RunState state_ ABSL_GUARDED_BY(mu_);
  BucketScheduler scheduler_ ABSL_GUARDED_BY(mu_);
  std::optional<PassAccounting> accounting_ ABSL_GUARDED_BY(mu_);
  SessionLeases leases_ ABSL_GUARDED_BY(mu_);
  OrderBook orders_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<StoreId, ServerLife> lives_ ABSL_GUARDED_BY(mu_);
  // Incarnations that a newer one of their server has taken over from.
  absl::flat_hash_set<Incarnation> superseded_servers_ ABSL_GUARDED_BY(mu_);
  // Places of processes that are not known, since a release named them first.
  std::map<Place, SteadyTime> awaited_places_ ABSL_GUARDED_BY(mu_);
  std::map<ShardName, absl::flat_hash_set<StoreId>> suspects_ ABSL_GUARDED_BY(mu_);
  // What the manifests that are stored in this life are written as.
  std::map<Token, std::string> manifest_bytes_ ABSL_GUARDED_BY(mu_);
  // The generation in which every partition has been trained, and since when who waits for that.
  Generation all_trained_in_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<SessionId, SteadyTime> tree_waits_ ABSL_GUARDED_BY(mu_);
  // The grant_revision_ at which a session without a grant found nothing; whether it may have found
  // something without the tree.
  uint64_t nothing_free_at_ ABSL_GUARDED_BY(mu_) = 0;
  bool tree_hinders_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<std::string, PinnedVersion> pins_ ABSL_GUARDED_BY(mu_);
  Token last_token_ ABSL_GUARDED_BY(mu_) = kInitialToken;
  SessionId last_session_ ABSL_GUARDED_BY(mu_) = 0;
  bool superseded_ ABSL_GUARDED_BY(mu_) = false;
  bool places_lost_ ABSL_GUARDED_BY(mu_) = false;       // since RewindIfLost
  bool manifests_changed_ ABSL_GUARDED_BY(mu_) = true;  // or their places, since CommitManifests
  bool cut_ordered_ ABSL_GUARDED_BY(mu_) = false;       // of this pass
  int64_t lost_edges_ ABSL_GUARDED_BY(mu_) = 0;         // buckets of which a shard lies nowhere
  bool push_is_whole_ ABSL_GUARDED_BY(mu_) = false;     // and is to be durable
  SteadyTime last_manifest_ ABSL_GUARDED_BY(mu_);
  uint64_t garbage_ ABSL_GUARDED_BY(mu_) = 1;  // grows when something became garbage
  uint64_t servers_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t grant_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t sync_revision_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t view_revision_ ABSL_GUARDED_BY(mu_) = 0;
  bool view_changed_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<LogEvent> events_ ABSL_GUARDED_BY(mu_);
  // Of what was trained in this process: says how long a bucket will take.
  int64_t trained_edges_ ABSL_GUARDED_BY(mu_) = 0;
  double trained_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  RunCounters counters_ ABSL_GUARDED_BY(mu_);
  PassTotals totals_ ABSL_GUARDED_BY(mu_);         // of this pass
  PassTotals totals_before_ ABSL_GUARDED_BY(mu_);  // of the last one that is over
  int64_t edges_before_pass_ ABSL_GUARDED_BY(mu_) = 0;
  const int64_t epoch_edges_;
};

}  // namespace weft
