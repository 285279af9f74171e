// ClusterParamClient keeps a trainer's live state in step with the parameter servers: a thread for
// each server exchanges what has changed, again and again, within the bounds of the configuration;
// a flush hurries it.
//
// An outage shorter than the patience only pauses: the push in flight is repeated, and once the
// last exchange is older than `max_staleness`, WaitUntilFresh holds the workers. After a failure
// nothing is exchanged until the next Join.
//
// Thread-safety: as ParamClient.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/clock.h"
#include "services/common/mutex.h"
#include "services/common/retry.h"
#include "services/common/transfer_metrics.h"
#include "services/param_server/param_client.h"
#include "services/param_server/param_server_client.h"
#include "services/param_server/parameter_sync.h"
#include "services/param_server/throttle.h"

namespace weft {

class ClusterParamClient : public ParamClient {
 public:
  struct Options {
    // Of each server's exchange.
    absl::Duration interval = absl::Milliseconds(20);
    int64_t max_bytes_per_second = 0;  // 0: no bound
    absl::Duration max_staleness = absl::Seconds(60);
    RetryOptions retry;
    size_t max_message_bytes = kMaxParamMessageBytes;
    TransferMetrics* transfers = nullptr;  // counts bytes; may be null
  };
  // A trainer's session and the servers of its generation, in the lock server's order.
  // The clients are new ones each time: those of an earlier session are cancelled.
  struct Session {
    ParamCaller caller;
    std::vector<std::shared_ptr<ParamServerClient>> servers;
    // Aborted once the lock server has ended the session: a server that does not answer is not
    // waited for any longer. Any thread; may be null.
    std::function<absl::Status()> status = nullptr;
  };
  using GetSession = std::function<absl::StatusOr<Session>()>;

  struct Stats {
    int64_t pushes = 0;  // answered
    int64_t rounds = 0;
    int64_t bytes = 0;  // of rows, both ways
    int64_t lost_pushes = 0;
    int64_t stale_waits = 0;
  };

  // `get_session` is asked at each Join. `clock` must outlive this object.
  ClusterParamClient(const Options& options, GetSession get_session, const Clock& clock);
  ~ClusterParamClient() override;

  // Begins to mark changes in `live`.
  // Errors: those of `get_session`; FailedPrecondition (another run, other parameters, no servers
  // though something is shared); Aborted (the session is over); Unavailable after the patience.
  absl::Status Join(SharedState* live) override;
  void BeginPass(int64_t pass) override { pass_ = pass; }
  // Errors: FailedPrecondition before Join; as WaitUntilFresh.
  absl::Status Flush() override;
  // Errors: Aborted (the server no longer knows the session, or it is over: join anew with a new
  // one), InvalidArgument (something would not be finite), Unavailable after the patience,
  // Internal.
  absl::Status WaitUntilFresh(const std::atomic<bool>& stop) override;

  Stats stats() const;
  // How old the oldest last exchange with a server is; zero without servers.
  absl::Duration staleness() const;

 private:
  struct Server {
    std::shared_ptr<ParamServerClient> client;
    std::optional<Throttle> throttle;  // its thread's
    int64_t flushed = 0;               // the last flush that is done
    SteadyTime last_exchange;
  };

  absl::Status JoinServer(int server, const ParamCaller& caller);
  void StartThreads();
  void StopThreads();
  // One thread's: rounds until it is stopped or fails.
  void ExchangeForEver(int server);
  absl::Status Round(int server, bool flush);
  absl::Status PushOnce(int server, bool flush);
  // Repeats `call` until patience or the session is over.
  absl::Status CallServer(const Peer& peer, absl::FunctionRef<absl::Status()> call);
  // Waits for the next round; whether it is for a flush, or none to end.
  std::optional<bool> AwaitRound(int server, int64_t* flush_number);
  void AwaitThrottle(int server);
  void Exchanged(int server, int64_t sent, int64_t received, int64_t lost);
  void CountBytes(int64_t sent, int64_t received) const;
  Peer PeerOf(int server) const;
  absl::Time Now() const;

  const Options options_;
  const GetSession get_session_;
  const Clock& clock_;

  // Set by Join, while no thread runs.
  std::unique_ptr<ParameterSync> sync_;
  SharedState* live_ = nullptr;
  std::unique_ptr<CancelFlag> cancel_;
  std::function<absl::Status()> session_status_;
  std::atomic<int64_t> pass_{0};
  // Steady time of the oldest last exchange; workers look at it before each batch.
  std::atomic<SteadyTime::rep> fresh_since_{0};
  std::atomic<bool> has_failed_{false};

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Server> servers_ ABSL_GUARDED_BY(mu_);
  bool joined_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  int64_t flush_wanted_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  Stats stats_ ABSL_GUARDED_BY(mu_);

  std::vector<std::jthread> threads_;
};

}  // namespace weft
