#include "services/param_server/cluster_param_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

// A server that restarts again and again while it is read.
constexpr int kMaxJoinAttempts = 5;
// How soon a stop is seen that nobody signals.
constexpr auto kStopInterval = std::chrono::milliseconds(100);

// To the server the session is unknown or over, or belongs to an earlier life.
absl::Status AsFailure(absl::Status status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  return absl::AbortedError(status.message());
}

}  // namespace

ClusterParamClient::ClusterParamClient(const Options& options, GetSession get_session,
                                       const Clock& clock)
    : options_(options), get_session_(std::move(get_session)), clock_(clock) {}

ClusterParamClient::~ClusterParamClient() { StopThreads(); }

absl::Time ClusterParamClient::Now() const {
  return absl::UnixEpoch() + absl::FromChrono(clock_.SteadyNow().time_since_epoch());
}

Peer ClusterParamClient::PeerOf(int server) const {
  MutexLock lock(&mu_);
  return {absl::StrCat("parameter server ", server),
          servers_[static_cast<size_t>(server)].client->address()};
}

void ClusterParamClient::StopThreads() {
  if (cancel_ != nullptr) cancel_->Cancel();
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (Server& server : servers_) server.client->Cancel();
    changed_.SignalAll();
  }
  threads_.clear();
}

absl::Status ClusterParamClient::Join(SharedState* live) {
  StopThreads();
  WEFT_ASSIGN_OR_RETURN(const Session session, get_session_());
  const SharedLayout layout = SharedLayout::Of(*live);
  if (session.servers.empty() && !layout.empty()) {
    return absl::FailedPreconditionError("the run has shared parameters, but no parameter server");
  }
  cancel_ = std::make_unique<CancelFlag>();
  session_status_ = session.status;
  {
    MutexLock lock(&mu_);
    servers_.clear();
    for (const auto& client : session.servers) {
      servers_.push_back({client,
                          Throttle({options_.interval, options_.max_bytes_per_second}, Now()),
                          flush_wanted_, clock_.SteadyNow()});
    }
    failure_ = absl::OkStatus();
    has_failed_ = false;
    joined_ = stopping_ = false;
  }
  const auto num_servers = static_cast<int>(session.servers.size());
  live->TrackChanges();
  if (sync_ == nullptr || live_ != live || sync_->num_servers() != num_servers) {
    live_ = live;
    sync_ = num_servers == 0
                ? nullptr
                : std::make_unique<ParameterSync>(
                      live, ParameterSync::Options{num_servers, options_.max_message_bytes});
  }
  for (int server = 0; server < num_servers; ++server) {
    WEFT_RETURN_IF_ERROR(JoinServer(server, session.caller));
  }
  StartThreads();
  return absl::OkStatus();
}

absl::Status ClusterParamClient::JoinServer(int server, const ParamCaller& caller) {
  const Peer peer = PeerOf(server);
  std::shared_ptr<ParamServerClient> client;
  {
    MutexLock lock(&mu_);
    client = servers_[static_cast<size_t>(server)].client;
  }
  absl::Status status;
  for (int attempt = 0; attempt < kMaxJoinAttempts; ++attempt) {
    std::optional<JoinRequest> request = sync_->BeginJoin(server, caller);
    while (request) {
      absl::StatusOr<JoinPage> page;
      status = CallServer(peer, [&] {
        page = client->Join(*request);
        return page.status();
      });
      if (!status.ok()) break;
      CountBytes(0, static_cast<int64_t>(page->rows.Bytes()));
      WEFT_ASSIGN_OR_RETURN(request, sync_->AcceptPage(server, *page));
    }
    if (!request) return absl::OkStatus();
    // Between two pages the server has restarted, if it is that.
    if (!absl::IsFailedPrecondition(status) || request->page == 0) return status;
  }
  return status;
}

absl::Status ClusterParamClient::CallServer(const Peer& peer,
                                            absl::FunctionRef<absl::Status()> call) {
  return RetryCall(peer, options_.retry, Idempotency::kIdempotent, cancel_.get(),
                   [&]() -> absl::Status {
                     if (session_status_ != nullptr) WEFT_RETURN_IF_ERROR(session_status_());
                     return call();
                   });
}

void ClusterParamClient::StartThreads() {
  MutexLock lock(&mu_);
  joined_ = true;
  const SteadyTime now = clock_.SteadyNow();
  for (Server& server : servers_) server.last_exchange = now;
  fresh_since_ = servers_.empty() ? SteadyTime::max().time_since_epoch().count()
                                  : now.time_since_epoch().count();
  for (size_t i = 0; i < servers_.size(); ++i) {
    threads_.emplace_back([this, i] { ExchangeForEver(static_cast<int>(i)); });
  }
}

absl::Status ClusterParamClient::Flush() {
  MutexLock lock(&mu_);
  if (!joined_) return absl::FailedPreconditionError("Flush before Join");
  const int64_t number = ++flush_wanted_;
  changed_.SignalAll();
  auto done = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return std::ranges::all_of(servers_, [&](const Server& s) { return s.flushed >= number; });
  };
  while (failure_.ok() && !stopping_ && !done()) changed_.Wait(&mu_);
  if (failure_.ok() && stopping_ && !done()) return absl::CancelledError("stopped");
  return failure_;
}

absl::Status ClusterParamClient::WaitUntilFresh(const std::atomic<bool>& stop) {
  auto fresh = [this] {
    const SteadyTime since{SteadyTime::duration(fresh_since_.load(std::memory_order_relaxed))};
    const SteadyTime now = clock_.SteadyNow();
    return since >= now || absl::FromChrono(now - since) <= options_.max_staleness;
  };
  if (!has_failed_.load(std::memory_order_relaxed) && fresh()) return absl::OkStatus();
  MutexLock lock(&mu_);
  ++stats_.stale_waits;
  while (failure_.ok() && !stop && !stopping_ && !fresh()) {
    changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() + kStopInterval);
  }
  return failure_;
}

ClusterParamClient::Stats ClusterParamClient::stats() const {
  MutexLock lock(&mu_);
  return stats_;
}

absl::Duration ClusterParamClient::staleness() const {
  const SteadyTime since{SteadyTime::duration(fresh_since_.load(std::memory_order_relaxed))};
  const SteadyTime now = clock_.SteadyNow();
  // Before the first Join there is nothing that could be old.
  if (since == SteadyTime() || since >= now) return absl::ZeroDuration();
  return absl::FromChrono(now - since);
}

void ClusterParamClient::CountBytes(int64_t sent, int64_t received) const {
  if (options_.transfers == nullptr) return;
  options_.transfers->AddSent(PeerRole::kParam, sent);
  options_.transfers->AddReceived(PeerRole::kParam, received);
}

void ClusterParamClient::ExchangeForEver(int server) {
  int64_t flush_number = 0;
  while (const std::optional<bool> flush = AwaitRound(server, &flush_number)) {
    absl::Status status = Round(server, *flush);
    MutexLock lock(&mu_);
    servers_[static_cast<size_t>(server)].throttle->EndRound(Now());
    ++stats_.rounds;
    if (stopping_) return;
    if (!status.ok()) {
      if (failure_.ok()) failure_ = AsFailure(std::move(status));
      has_failed_ = true;
      changed_.SignalAll();
      return;
    }
    if (*flush) servers_[static_cast<size_t>(server)].flushed = flush_number;
    changed_.SignalAll();
  }
}

std::optional<bool> ClusterParamClient::AwaitRound(int server, int64_t* flush_number) {
  MutexLock lock(&mu_);
  Server& s = servers_[static_cast<size_t>(server)];
  while (true) {
    if (stopping_) return std::nullopt;
    *flush_number = flush_wanted_;
    if (s.flushed < flush_wanted_) break;
    const absl::Duration wait = s.throttle->NextRound() - Now();
    if (wait <= absl::ZeroDuration()) break;
    changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() +
                                 absl::ToChronoNanoseconds(std::min(wait, absl::Hours(1))));
  }
  s.throttle->BeginRound(Now());
  return s.flushed < flush_wanted_;
}

void ClusterParamClient::AwaitThrottle(int server) {
  MutexLock lock(&mu_);
  Server& s = servers_[static_cast<size_t>(server)];
  // A flush does not wait; what it sends is paid for by the rounds after it.
  while (!stopping_ && s.flushed >= flush_wanted_) {
    const absl::Duration wait = s.throttle->NextMessage() - Now();
    if (wait <= absl::ZeroDuration()) return;
    changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() +
                                 absl::ToChronoNanoseconds(std::min(wait, absl::Hours(1))));
  }
}

absl::Status ClusterParamClient::Round(int server, bool flush) {
  sync_->Collect();
  while (true) {
    WEFT_RETURN_IF_ERROR(PushOnce(server, flush));
    if (sync_->num_queued(server) == 0 &&
        !(flush ? sync_->unsynced(server) : sync_->more(server))) {
      return absl::OkStatus();
    }
    AwaitThrottle(server);
    MutexLock lock(&mu_);
    if (stopping_) return absl::CancelledError("stopped");
  }
}

absl::Status ClusterParamClient::PushOnce(int server, bool flush) {
  const Peer peer = PeerOf(server);
  std::shared_ptr<ParamServerClient> client;
  {
    MutexLock lock(&mu_);
    client = servers_[static_cast<size_t>(server)].client;
  }
  const PushRequest& request = sync_->NextPush(server, pass_, flush);
  const auto sent = static_cast<int64_t>(request.rows.Bytes());
  absl::StatusOr<PushAnswer> answer;
  const auto push = [&] {
    return CallServer(peer, [&] {
      answer = client->Push(request);
      return answer.status();
    });
  };
  absl::Status status = push();
  // Refused, perhaps because its pass is over: a push that was made while the next one began may
  // have rows of both, and is the next one's.
  if (absl::IsFailedPrecondition(status) && request.pass != pass_) {
    sync_->MoveToPass(server, pass_);
    status = push();
  }
  WEFT_RETURN_IF_ERROR(status);
  WEFT_RETURN_IF_ERROR(sync_->Merge(server, *answer));
  Exchanged(server, sent, static_cast<int64_t>(answer->rows.Bytes()),
            static_cast<int64_t>(answer->lost_pushes));
  return absl::OkStatus();
}

void ClusterParamClient::Exchanged(int server, int64_t sent, int64_t received, int64_t lost) {
  CountBytes(sent, received);
  MutexLock lock(&mu_);
  Server& s = servers_[static_cast<size_t>(server)];
  s.throttle->Count(sent + received, Now());
  s.last_exchange = clock_.SteadyNow();
  SteadyTime oldest = s.last_exchange;
  for (const Server& other : servers_) oldest = std::min(oldest, other.last_exchange);
  fresh_since_ = oldest.time_since_epoch().count();
  ++stats_.pushes;
  stats_.bytes += sent + received;
  stats_.lost_pushes += lost;
  changed_.SignalAll();
}

}  // namespace weft
