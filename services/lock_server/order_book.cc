#include "services/lock_server/order_book.h"

#include <utility>

namespace weft {
namespace {

RetryOptions Pauses() {
  RetryOptions pauses;
  pauses.patience = absl::InfiniteDuration();
  pauses.first_delay = OrderBook::kFirstPause;
  pauses.max_delay = OrderBook::kMaxPause;
  return pauses;
}

}  // namespace

std::vector<NumberedOrder> OrderBook::Number(StoreId server, std::vector<Wanted> wanted,
                                             SteadyTime now) {
  absl::flat_hash_map<std::string, uint64_t>& known = ids_[server];
  absl::flat_hash_map<std::string, uint64_t> ids;
  std::vector<NumberedOrder> numbered;
  for (Wanted& order : wanted) {
    if (IsHeldBack(server, order.key, now)) continue;
    const auto found = known.find(order.key);
    const uint64_t id = found != known.end() ? found->second : ++last_id_;
    ids.emplace(std::move(order.key), id);
    numbered.push_back({id, std::move(order.order)});
  }
  known = std::move(ids);
  orders_[server] = numbered;
  // What is not wanted any more when its time is over has been done, or is for nothing.
  absl::erase_if(failures_[server], [&](const auto& failure) {
    return failure.second.until <= now && !known.contains(failure.first);
  });
  return numbered;
}

std::optional<OrderBook::Wanted> OrderBook::Take(StoreId server, uint64_t id) {
  std::optional<Wanted> taken;
  absl::flat_hash_map<std::string, uint64_t>& ids = ids_[server];
  std::vector<NumberedOrder>& orders = orders_[server];
  for (auto key = ids.begin(); key != ids.end(); ++key) {
    if (key->second != id) continue;
    for (auto order = orders.begin(); order != orders.end(); ++order) {
      if (order->id != id) continue;
      taken = Wanted{key->first, std::move(order->order)};
      orders.erase(order);
      break;
    }
    ids.erase(key);
    break;
  }
  return taken;
}

void OrderBook::HoldBack(StoreId server, const std::string& key, const absl::Status& cause,
                         SteadyTime now) {
  Failure& failure = failures_[server]
                         .try_emplace(key, Failure{Backoff(Pauses(), last_id_), now, cause})
                         .first->second;
  failure.until = now + absl::ToChronoNanoseconds(*failure.backoff.Next(now));
  failure.cause = cause;
  failure.due = false;
}

const OrderBook::Failure* OrderBook::Find(StoreId server, const std::string& key) const {
  const auto failures = failures_.find(server);
  if (failures == failures_.end()) return nullptr;
  const auto failure = failures->second.find(key);
  return failure == failures->second.end() ? nullptr : &failure->second;
}

bool OrderBook::IsHeldBack(StoreId server, const std::string& key, SteadyTime now) const {
  const Failure* const failure = Find(server, key);
  return failure != nullptr && now < failure->until;
}

absl::Status OrderBook::CauseOf(StoreId server, const std::string& key) const {
  const Failure* const failure = Find(server, key);
  return failure == nullptr ? absl::OkStatus() : failure->cause;
}

bool OrderBook::AnyIsDue(SteadyTime now) {
  bool any = false;
  for (auto& [server, failures] : failures_) {
    for (auto& [key, failure] : failures) {
      if (failure.due || now < failure.until) continue;
      failure.due = true;
      any = true;
    }
  }
  return any;
}

}  // namespace weft
