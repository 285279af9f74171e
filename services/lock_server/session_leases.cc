#include "services/lock_server/session_leases.h"

#include <algorithm>

namespace weft {

void SessionLeases::Begin(SessionId id, absl::Span<const Token> grants, SteadyTime now) {
  Session& session = sessions_[id];
  session.heard = now;
  session.beaten = now;
  session.worked = now;
  for (const Token token : grants) session.listed[token] = now;
}

void SessionLeases::Heard(SessionId id, SteadyTime now) {
  const auto session = sessions_.find(id);
  if (session != sessions_.end()) session->second.heard = now;
}

void SessionLeases::Granted(SessionId id, Token token, SteadyTime now) {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return;
  // Who has nothing to do makes no progress: its work begins now.
  if (session->second.listed.empty()) session->second.worked = now;
  session->second.listed[token] = now;
}

void SessionLeases::GrantEnded(SessionId id, Token token) {
  const auto session = sessions_.find(id);
  if (session != sessions_.end()) session->second.listed.erase(token);
}

void SessionLeases::Beat(SessionId id, absl::Span<const Token> tokens, uint64_t progress,
                         SteadyTime now) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  session.heard = now;
  session.beaten = now;
  if (progress != session.progress || session.listed.empty()) session.worked = now;
  session.progress = progress;
  for (const Token token : tokens) {
    const auto listed = session.listed.find(token);
    if (listed != session.listed.end()) listed->second = now;
  }
}

SessionLeases::Due SessionLeases::Look(SteadyTime now) {
  Duration late = looked_.has_value() ? now - *looked_ - kTick : Duration::zero();
  if (late <= kMaxLateness) late = Duration::zero();
  looked_ = now;
  Due due;
  due.late = late;
  for (auto& [id, session] : sessions_) {
    session.heard += late;
    session.beaten += late;
    session.worked += late;
    for (auto& [token, listed] : session.listed) listed += late;
    if (now - session.heard >= lease_) {
      due.silent.push_back(id);
      continue;
    }
    if (stall_timeout_ > Duration::zero() && !session.listed.empty() &&
        now - session.worked >= stall_timeout_) {
      due.stalled.push_back(id);
      continue;
    }
    for (const auto& [token, listed] : session.listed) {
      if (session.beaten - listed >= lease_) due.unlisted.push_back(token);
    }
  }
  std::ranges::sort(due.silent);
  std::ranges::sort(due.stalled);
  std::ranges::sort(due.unlisted);
  return due;
}

std::optional<SessionLeases::View> SessionLeases::Of(SessionId id, SteadyTime now) const {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return std::nullopt;
  return View{lease_ - (now - session->second.heard), session->second.progress};
}

}  // namespace weft
