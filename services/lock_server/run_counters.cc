#include "services/lock_server/run_counters.h"

#include <chrono>

namespace weft {
namespace {

constexpr auto kRateWindow = std::chrono::minutes(5);
// Buckets may take longer than the window each.
constexpr size_t kMinCommits = 16;
constexpr size_t kMaxCommits = 4096;

double Seconds(SteadyTime::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void PassTotals::Add(const BucketStats& bucket) {
  edges_ += bucket.trained_edges + bucket.held_out_edges;
  train_.Add(bucket.train);
  if (bucket.eval_before.has_value()) eval_before_.Add(*bucket.eval_before);
  if (bucket.eval_after.has_value()) eval_after_.Add(*bucket.eval_after);
}

void CommitRate::Begin(SteadyTime now) {
  if (commits_.empty()) commits_.emplace_back(now, 0);
}

void CommitRate::Add(int64_t edges, SteadyTime now) {
  Begin(now);
  commits_.emplace_back(now, edges);
  edges_ += edges;
  const auto too_many = [&] {
    if (commits_.size() > kMaxCommits) return true;
    return commits_.size() > kMinCommits + 1 && commits_.front().first < now - kRateWindow;
  };
  while (too_many()) {
    commits_.pop_front();
    edges_ -= commits_.front().second;
  }
}

std::optional<double> CommitRate::PerSecond(SteadyTime now) const {
  if (commits_.size() < 2 || now <= commits_.front().first) return std::nullopt;
  return static_cast<double>(edges_) / Seconds(now - commits_.front().first);
}

RunCounters::RunCounters(SteadyTime now)
    : grant_seconds({0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600}),
      checkpoint_seconds({0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800}),
      last_commit(now),
      begin_(now) {}

void RunCounters::GrantMade(Token token, SteadyTime now) {
  ++grants;
  made_[token] = now;
  rate.Begin(now);
}

void RunCounters::GrantEnded(Token token, size_t buckets, GrantEnd why, SteadyTime now) {
  ++grants_ended[static_cast<size_t>(why)];
  if (why == GrantEnd::kReleased) {
    grant_seconds.Observe(Seconds(now - MadeAt(token)));
  } else {
    requeued_buckets += static_cast<int64_t>(buckets);
  }
  made_.erase(token);
}

void RunCounters::Committed(const BucketStats& bucket, SteadyTime now) {
  trained_edges += bucket.trained_edges;
  held_out_edges += bucket.held_out_edges;
  rate.Add(bucket.trained_edges + bucket.held_out_edges, now);
}

void RunCounters::ManifestCommitted(Token token, SteadyTime now) {
  const auto began = manifests_.find(token);
  if (began != manifests_.end()) {
    checkpoint_seconds.Observe(Seconds(now - began->second));
    manifests_.erase(began);
  }
  last_commit = now;
}

void RunCounters::Rewound() {
  ++rewinds;
  manifests_.clear();
}

SteadyTime RunCounters::MadeAt(Token token) const {
  const auto made = made_.find(token);
  return made == made_.end() ? begin_ : made->second;
}

}  // namespace weft
