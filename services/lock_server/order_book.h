// OrderBook numbers what servers are told to do. What is to be done follows from the run's state
// anew at each look; an order that is wanted still keeps its number, so that a server sees that it
// is at it already. One that failed is held back for a while, longer each time.
//
// Numbers are of one life of the lock server. Not thread-safe. Times are of the steady clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "services/common/clock.h"
#include "services/common/retry.h"
#include "services/common/store_sync.h"

namespace weft {

class OrderBook {
 public:
  struct Wanted {
    std::string key;  // names the order for its server
    StoreOrder order;
  };

  // What is new here is told at a tick of the lock server's, so shorter pauses would be none.
  static constexpr absl::Duration kFirstPause = absl::Milliseconds(500);
  static constexpr absl::Duration kMaxPause = absl::Seconds(10);

  explicit OrderBook(Term term) : last_id_(term << 32) {}

  // `wanted` takes the place of what was wanted of this server before. Without what is held back.
  std::vector<NumberedOrder> Number(StoreId server, std::vector<Wanted> wanted, SteadyTime now);

  // The order that a server reports on; it gets a new number when it is wanted again. None: not
  // wanted any more, or of another life.
  std::optional<Wanted> Take(StoreId server, uint64_t id);

  // The order failed there, because of `cause`.
  void HoldBack(StoreId server, const std::string& key, const absl::Status& cause, SteadyTime now);
  bool IsHeldBack(StoreId server, const std::string& key, SteadyTime now) const;
  // Why the order failed there last; OK when it has not, or has been done since.
  absl::Status CauseOf(StoreId server, const std::string& key) const;
  // Whether the time of an order that is held back is over: once for each.
  bool AnyIsDue(SteadyTime now);
  // What kept orders from succeeding may be over: all are told again at once.
  void ForgetFailures() { failures_.clear(); }

 private:
  struct Failure {
    Backoff backoff;
    SteadyTime until;
    absl::Status cause;
    bool due = false;  // and told of
  };
  using Failures = absl::flat_hash_map<std::string, Failure>;

  const Failure* Find(StoreId server, const std::string& key) const;

  uint64_t last_id_;
  absl::flat_hash_map<StoreId, absl::flat_hash_map<std::string, uint64_t>> ids_;
  absl::flat_hash_map<StoreId, std::vector<NumberedOrder>> orders_;
  absl::flat_hash_map<StoreId, Failures> failures_;
};

}  // namespace weft
