// SessionLeases knows how long each session lives without being heard, and without progress.
//
// It is never stored: a start begins with a full lease for every session that is known. When the
// clock is looked at later than it should have been (this process was stopped, the machine was
// busy), nobody could be heard meanwhile, so the lateness is added to every deadline.
// Not thread-safe. Times are of the steady clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "services/common/clock.h"
#include "services/common/types.h"
#include "services/lock_server/run_state.h"

namespace weft {

class SessionLeases {
 public:
  using Duration = SteadyTime::duration;
  // How late a look at the clock may be without being made up for.
  static constexpr Duration kMaxLateness = std::chrono::seconds(1);
  static constexpr Duration kTick = std::chrono::milliseconds(500);

  // A stall timeout of zero: never.
  SessionLeases(Duration lease, Duration stall_timeout)
      : lease_(lease), stall_timeout_(stall_timeout) {}

  void Begin(SessionId session, absl::Span<const Token> grants, SteadyTime now);
  void End(SessionId session) { sessions_.erase(session); }
  void Clear() { sessions_.clear(); }

  // A call of the session. Unknown ones are ignored, here and below.
  void Heard(SessionId session, SteadyTime now);
  void Granted(SessionId session, Token token, SteadyTime now);
  void GrantEnded(SessionId session, Token token);
  // A heartbeat: what it has, and a counter that grows with its work.
  void Beat(SessionId session, absl::Span<const Token> tokens, uint64_t progress, SteadyTime now);

  struct Due {
    std::vector<SessionId> silent;   // ascending
    std::vector<SessionId> stalled;  // heard, but without progress
    std::vector<Token> unlisted;     // of sessions whose heartbeats have not named them for a lease
    Duration late{};                 // made up for
  };
  // Call it every kTick.
  Due Look(SteadyTime now);

  struct View {
    Duration left{};
    uint64_t progress = 0;
  };
  std::optional<View> Of(SessionId session, SteadyTime now) const;

 private:
  struct Session {
    SteadyTime heard;
    SteadyTime beaten;  // the last heartbeat: only these can tell that a grant is not known
    SteadyTime worked;
    uint64_t progress = 0;
    absl::flat_hash_map<Token, SteadyTime> listed;
  };

  const Duration lease_;
  const Duration stall_timeout_;
  std::optional<SteadyTime> looked_;
  absl::flat_hash_map<SessionId, Session> sessions_;
};

}  // namespace weft
