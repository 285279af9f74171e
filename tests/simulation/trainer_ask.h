// How the trainer calls the lock server: again and again, until there is an answer.
#pragma once

#include <utility>

#include "tests/simulation/trainer_process.h"

namespace weft::simulation {

template <typename T>
void TrainerProcess::Ask(const SessionPtr& session, Duration wait, LockProcess::RunCall<T> call,
                         Reply<T> done) {
  if (session->ended) return done(absl::AbortedError("the session has ended"));
  LockProcess* const lock = addresses_->lock;
  const auto serve = [lock, context = session->context, wait, call](const Reply<Told<T>>& reply) {
    lock->Serve<T>(context, wait, call, reply);
  };
  Process::Call<Told<T>>(lock, wait + Seconds(2), serve,
                         [=, this](const absl::StatusOr<Told<T>>& told) {
                           if (session != session_) return;
                           absl::Status status = told.status();
                           if (status.ok()) {
                             // An answer of an older life of the run is no answer.
                             status = fence_->Check(told->context);
                             if (absl::IsAborted(status))
                               status = absl::UnavailableError(status.message());
                             if (status.ok() && session->context.term == 0)
                               session->context = told->context;
                           }
                           if (IsTransient(status)) {
                             return Retry([=, this] {
                               if (session == session_) Ask<T>(session, wait, call, done);
                             });
                           }
                           if (absl::IsAborted(status)) session->ended = true;
                           if (!status.ok()) return done(status);
                           done(told->answer);
                         });
}

}  // namespace weft::simulation
