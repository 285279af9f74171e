// OrderBook numbers what servers are told to do. What is to be done follows from the run's state
// anew at each look; an order that is wanted still keeps its number, so that a server sees that it
// is at it already.
//
// Numbers are of one life of the lock server. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/store_sync.h"

namespace weft {

class OrderBook {
 public:
  struct Wanted {
    std::string key;  // names the order for its server
    StoreOrder order;
  };

  explicit OrderBook(Term term) : last_id_(term << 32) {}

  // `wanted` takes the place of what was wanted of this server before.
  std::vector<NumberedOrder> Number(StoreId server, std::vector<Wanted> wanted) {
    absl::flat_hash_map<std::string, uint64_t>& known = ids_[server];
    absl::flat_hash_map<std::string, uint64_t> ids;
    std::vector<NumberedOrder> numbered;
    for (Wanted& order : wanted) {
      const auto found = known.find(order.key);
      const uint64_t id = found != known.end() ? found->second : ++last_id_;
      ids.emplace(std::move(order.key), id);
      numbered.push_back({id, std::move(order.order)});
    }
    known = std::move(ids);
    orders_[server] = numbered;
    return numbered;
  }

  // The order that a server reports on; it gets a new number when it is wanted again. None: not
  // wanted any more, or of another life.
  std::optional<StoreOrder> Take(StoreId server, uint64_t id) {
    absl::erase_if(ids_[server], [&](const auto& entry) { return entry.second == id; });
    std::vector<NumberedOrder>& orders = orders_[server];
    for (auto it = orders.begin(); it != orders.end(); ++it) {
      if (it->id != id) continue;
      StoreOrder order = std::move(it->order);
      orders.erase(it);
      return order;
    }
    return std::nullopt;
  }

 private:
  uint64_t last_id_;
  absl::flat_hash_map<StoreId, absl::flat_hash_map<std::string, uint64_t>> ids_;
  absl::flat_hash_map<StoreId, std::vector<NumberedOrder>> orders_;
};

}  // namespace weft
