// RowBlockStore is a parameter server without its sockets: it holds the server's share of what all
// trainers share, applies each push exactly once, and tells each trainer what others have changed.
//
// Contents come and go by order of the lock server alone (Install, Cut, Snapshot, EndSessions);
// trainers Join (a full pull, in pages) and then Push differences. A push is applied once however
// often it arrives: its rows, their versions and its number are one change, in memory and on disk.
//
// Thread-safety: Join, Push, stats: any thread. Orders: one at a time, beside them.
// Restart: Open reads all that the log has. Versions begin anew with the new incarnation, so a
// cursor of an earlier one is answered with every row.
// After a failed write every call fails, and the process should end (failed()).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/common/cluster_types.h"
#include "services/common/metrics.h"
#include "services/common/mutex.h"
#include "services/common/run_fence.h"
#include "services/param_server/param_exchange.h"
#include "services/param_server/param_snapshot.h"
#include "services/param_server/push_log.h"
#include "services/param_server/row_table.h"

namespace weft {

// Why a call was refused; nothing was changed by it.
enum class ParamRefusal {
  kWrongRun,
  kOldLife,  // of the lock server, or of the run before a rewind
  kSessionOver,
  kNotJoined,
  kOldPass,
  kBadNumber,
  kBadRows,
  kNotFinite,
  kCount,
};

class RowBlockStore {
 public:
  struct Options {
    Incarnation incarnation = 1;  // of this process
    size_t max_message_bytes = kMaxParamMessageBytes;
  };

  // Which part of which run this server holds.
  struct Share {
    std::string run_id;
    Generation generation = 0;
    SharedLayout layout;
    int server = 0;  // index in the lock server's list
    int num_servers = 1;
  };

  struct Stats {
    int64_t joins = 0;
    int64_t pushes = 0;   // applied
    int64_t repeats = 0;  // not applied again
    int64_t rows_received = 0;
    int64_t rows_sent = 0;
    int64_t lost_pushes = 0;
    int64_t sessions = 0;  // now
    int64_t rows = 0;      // held now
    int64_t row_bytes = 0;
    std::array<int64_t, static_cast<size_t>(ParamRefusal::kCount)> refused{};
  };

  // `log` must outlive the store.
  // Errors: DataLoss (a row is missing or damaged); the log's.
  static absl::StatusOr<std::unique_ptr<RowBlockStore>> Open(const Options& options, PushLog* log);

  // --- Orders. Each is idempotent, durable when it returns.

  // Fills the server's rows: with initial values, or from snapshots (SnapshotRestore); `fill`
  // returns the optimizer's step count. Pushes of passes below `first_open_pass` are refused. Ends
  // all sessions, drops all cuts. A repeat for the generation that is installed changes nothing.
  using Fill = absl::FunctionRef<absl::StatusOr<int64_t>(RowTable* table)>;
  // Errors: Aborted (a lower generation), FailedPrecondition (another run), those of `fill`.
  absl::Status Install(const Share& share, int64_t first_open_pass, Fill fill);
  // Refuses pushes of passes below `first_open_pass` from now on, and keeps a snapshot of this
  // moment. A repeat changes nothing.
  // Errors: Aborted (a lower generation), Unavailable (a higher one than is installed).
  absl::Status Cut(Generation generation, int64_t first_open_pass);
  // The snapshot of a cut; none: of now. Earlier cuts are dropped: they have been stored.
  // Errors: as Cut; NotFound (no such cut), DataLoss.
  absl::StatusOr<std::shared_ptr<const ParamSnapshot>> Snapshot(
      Generation generation, std::optional<int64_t> first_open_pass);
  // Sessions that the lock server has ended: their pushes are refused from now on.
  absl::Status EndSessions(absl::Span<const Incarnation> incarnations);
  // Calls of earlier lives are refused from now on. Errors: as RunFence::Check.
  absl::Status Heard(const RunContext& context) { return fence_.Check(context); }

  // --- Trainers.

  // Errors of both: FailedPrecondition (wrong run; another layout), Aborted (lower term or
  // generation, session over), Unavailable (nothing installed yet for this generation),
  // InvalidArgument (malformed), the log's.
  // Join also: FailedPrecondition when the server has restarted between two pages.
  absl::StatusOr<JoinPage> Join(const JoinRequest& request);
  // Also: FailedPrecondition (not joined, or a pass that was cut: join again); InvalidArgument (a
  // gap in the numbers, rows that are not here or not finite).
  absl::StatusOr<PushAnswer> Push(const PushRequest& request);

  // The newest life of the run that was heard of.
  RunContext context() const { return fence_.known(); }
  RunFence* fence() { return &fence_; }
  // What is installed; none: nothing.
  std::optional<Share> share() const;
  // The passes before are cut, durably.
  int64_t first_open_pass() const;
  // The sessions that have joined and are not over.
  std::vector<Incarnation> joined() const;
  absl::Status failed() const;
  Stats stats() const;
  // A call that cannot be read was refused before it came here.
  void RefusedMalformed() ABSL_LOCKS_EXCLUDED(mu_);
  void WriteMetrics(MetricsPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Session {
    uint64_t last_number = 0;
  };

  RowBlockStore(const Options& options, PushLog* log) : options_(options), log_(log) {}

  absl::Status Recover();
  absl::Status WriteRows(const RowTable& table);
  absl::Status CheckGeneration(Generation generation) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<const ParamSnapshot> Copy(int64_t first_open_pass) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Write(absl::Span<const PushLog::Change> changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Sync() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Refuse(ParamRefusal why, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckCaller(const ParamCaller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<JoinPage> JoinLocked(const JoinRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<PushAnswer> PushLocked(const PushRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The indices of the pushed rows, and their new floats.
  absl::Status Sum(const RowBatch& rows, std::vector<int64_t>* indices, std::vector<float>* values)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Apply(const PushRequest& request, Session* session, std::vector<bool>* only_theirs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Rows newer than the cursor. `only_theirs[i]`: the row with version `first_own` + i has changed
  // by this push alone since then, so the trainer knows it.
  void Answer(const ParamCursor& cursor, uint64_t first_own, const std::vector<bool>& only_theirs,
              PushAnswer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  PushLog* const log_;
  RunFence fence_;

  mutable Mutex mu_;
  absl::Status failed_ ABSL_GUARDED_BY(mu_);
  // None while nothing is installed; then nobody but Install writes the log.
  std::optional<Share> share_ ABSL_GUARDED_BY(mu_);
  RowTable table_ ABSL_GUARDED_BY(mu_);
  int64_t first_open_pass_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t durable_open_pass_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t steps_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<Incarnation, Session> sessions_ ABSL_GUARDED_BY(mu_);
  std::set<Incarnation> over_ ABSL_GUARDED_BY(mu_);  // sessions of this generation
  // By the first pass that is open after it; null: only in the log.
  std::map<int64_t, std::shared_ptr<const ParamSnapshot>> cuts_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
