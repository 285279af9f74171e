#include "tests/simulation/exchange.h"

#include <algorithm>
#include <utility>

#include "services/common/retry.h"

namespace weft::simulation {
namespace {

constexpr Duration kTimeout = Seconds(3);

// To the server the session is unknown or over, or belongs to an earlier life.
absl::Status AsFailure(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) ? absl::AbortedError(status.message()) : status;
}

}  // namespace

Exchange::Exchange(Process* trainer, RunFence* fence, ParameterSync* sync, ParamCaller caller,
                   std::vector<ParamProcess*> servers, std::function<bool()> over)
    : trainer_(trainer),
      fence_(fence),
      sync_(sync),
      caller_(std::move(caller)),
      over_(std::move(over)) {
  for (ParamProcess* process : servers) servers_.push_back({process});
}

void Exchange::SetTerm(ParamCaller* caller) const {
  const RunContext known = fence_->known();
  caller->context.term = known.term;
  caller->context.lock_server = known.lock_server;
}

void Exchange::Join(Done done) {
  if (servers_.empty()) return done(absl::OkStatus());
  JoinServer(0, sync_->BeginJoin(0, caller_), std::move(done));
}

void Exchange::JoinServer(size_t server, JoinRequest request, Done done) {
  if (ended_) return;
  if (over_()) return done(absl::AbortedError("the session has ended"));
  ParamProcess* const process = servers_[server].process;
  JoinRequest sent = request;
  SetTerm(&sent.caller);
  trainer_->Call<Told<JoinPage>>(
      process, kTimeout, [=](const Reply<Told<JoinPage>>& reply) { process->Join(sent, reply); },
      [=, this, self = shared_from_this()](const absl::StatusOr<Told<JoinPage>>& page) {
        if (ended_) return;
        const auto again = [=, this](const JoinRequest& next) {
          trainer_->After(trainer_->world().Between(Milliseconds(25), Seconds(1)),
                          [=, this] { JoinServer(server, next, done); });
        };
        trainer_->world().Log(trainer_, "joins parameters: " + page.status().ToString());
        if (IsTransient(page.status())) return again(request);
        if (absl::IsFailedPrecondition(page.status()) && request.page > 0) {
          return again(sync_->BeginJoin(static_cast<int>(server), caller_));
        }
        if (!page.ok()) return done(AsFailure(page.status()));
        const auto next = sync_->AcceptPage(static_cast<int>(server), page->answer);
        if (!next.ok()) return done(next.status());
        if (next->has_value()) return JoinServer(server, **next, done);
        if (server + 1 < servers_.size()) {
          return JoinServer(server + 1, sync_->BeginJoin(static_cast<int>(server) + 1, caller_),
                            done);
        }
        for (size_t i = 0; i < servers_.size(); ++i) RoundLater(i);
        done(absl::OkStatus());
      });
}

void Exchange::RoundLater(size_t server) {
  trainer_->After(trainer_->world().Between(Milliseconds(100), Seconds(2)),
                  [self = shared_from_this(), server] {
                    self->RoundLater(server);
                    if (!self->servers_[server].busy) self->Round(server);
                  });
}

void Exchange::Flush(Done done) {
  if (servers_.empty()) return done(absl::OkStatus());
  if (!failure_.ok()) return done(failure_);
  flushes_.emplace_back(++flush_wanted_, std::move(done));
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].busy) Round(i);
  }
}

void Exchange::Round(size_t server) {
  if (ended_ || !failure_.ok()) return;
  servers_[server].busy = true;
  sync_->Collect();
  PushOnce(server, servers_[server].flushed < flush_wanted_, flush_wanted_);
}

void Exchange::PushOnce(size_t index, bool flush, int64_t flush_number) {
  if (ended_ || !failure_.ok()) return;
  if (over_()) return Fail(absl::AbortedError("the session has ended"));
  const int server = static_cast<int>(index);
  ParamProcess* const process = servers_[index].process;
  PushRequest request = sync_->NextPush(server, pass_, flush);
  SetTerm(&request.caller);
  trainer_->Call<Told<PushAnswer>>(
      process, kTimeout,
      [=](const Reply<Told<PushAnswer>>& reply) { process->Push(request, reply); },
      [=, this, self = shared_from_this()](const absl::StatusOr<Told<PushAnswer>>& answer) {
        if (ended_ || !failure_.ok()) return;
        const absl::Status status = answer.status();
        if (!status.ok()) trainer_->world().Log(trainer_, "push: " + status.ToString());
        if (IsTransient(status)) {
          return trainer_->After(trainer_->world().Between(Milliseconds(25), Seconds(1)),
                                 [=, this] { self->PushOnce(index, flush, flush_number); });
        }
        if (absl::IsFailedPrecondition(status) && request.pass != pass_) {
          sync_->MoveToPass(server, pass_);
          return PushOnce(index, flush, flush_number);
        }
        if (!status.ok()) return Fail(AsFailure(status));
        if (const absl::Status merged = sync_->Merge(server, answer->answer); !merged.ok()) {
          return Fail(merged);
        }
        if (sync_->num_queued(server) > 0 ||
            (flush ? sync_->unsynced(server) : sync_->more(server))) {
          return PushOnce(index, flush, flush_number);
        }
        Server& s = servers_[index];
        s.busy = false;
        if (flush) s.flushed = flush_number;
        if (s.flushed < flush_wanted_) Round(index);
        Notify();
      });
}

void Exchange::Fail(absl::Status status) {
  failure_ = std::move(status);
  Notify();
}

void Exchange::Notify() {
  int64_t flushed = flush_wanted_;
  for (const Server& server : servers_) flushed = std::min(flushed, server.flushed);
  auto flushes = std::exchange(flushes_, {});
  for (auto& [number, done] : flushes) {
    if (!failure_.ok() || number <= flushed) {
      done(failure_);
    } else {
      flushes_.emplace_back(number, std::move(done));
    }
  }
}

}  // namespace weft::simulation
