// What is measured of a run.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_names.h"

namespace weft {

absl::Status RunCoordinator::Refuse(CallRefusal why, absl::Status status) {
  ++counters_.refused[static_cast<size_t>(why)];
  return status;
}

void RunCoordinator::CountGrantEnds(const std::vector<Token>& tokens, GrantEnd why) {
  const SteadyTime now = clock_.SteadyNow();
  const LogEvent::Level level =
      why == GrantEnd::kReleased ? LogEvent::Level::kDebug : LogEvent::Level::kInfo;
  for (const Token token : tokens) {
    counters_.GrantEnded(token, state_.grants.at(token).buckets.size(), why, now);
    if (!Tells(level)) continue;
    std::vector<LogField> fields = DescribeGrant(token);
    fields.emplace_back("reason", kGrantEnds[static_cast<size_t>(why)]);
    Event(LogEvent("grant ends", std::move(fields), level));
  }
}

std::vector<LogField> RunCoordinator::DescribeGrant(Token token) const {
  const GrantRecord& grant = state_.grants.at(token);
  const auto name = [](std::string* to, Bucket bucket) { absl::StrAppend(to, LogName(bucket)); };
  return {{"pass", state_.position.pass},
          {"bucket", absl::StrJoin(grant.buckets, " ", name)},
          {"trainer", state_.sessions.at(grant.session).name},
          {"token", token}};
}

RunMetrics RunCoordinator::metrics() const {
  MutexLock lock(&mu_);
  const SteadyTime now = clock_.SteadyNow();
  const auto seconds = [](SteadyTime::duration duration) {
    return std::chrono::duration<double>(duration).count();
  };
  RunMetrics metrics;
  metrics.counters = counters_;
  metrics.phase = Phase();
  metrics.term = state_.term;
  metrics.generation = state_.generation;
  metrics.position = state_.position;
  metrics.num_epochs = plan_.num_epochs;

  if (accounting_.has_value()) {
    metrics.done_buckets = scheduler_.num_done();
    metrics.granted_buckets = scheduler_.num_granted();
    metrics.free_buckets =
        scheduler_.num_buckets() - metrics.done_buckets - metrics.granted_buckets;
    metrics.pass_edges = accounting_->expected_edges();
    metrics.pass_committed_edges = totals_.edges();
  } else {
    (Done() ? metrics.done_buckets : metrics.free_buckets) = scheduler_.num_buckets();
  }
  metrics.num_rhs = plan_.num_rhs;
  if (scheduler_.num_buckets() <= kMaxMatrixBuckets) metrics.buckets = BucketStates();

  metrics.run_edges = plan_.num_epochs * epoch_edges_;
  metrics.run_committed_edges = edges_before_pass_ + metrics.pass_committed_edges;
  metrics.edges_per_second = counters_.rate.PerSecond(now);
  if (Done()) {
    metrics.eta_seconds = 0;
  } else if (metrics.phase == RunPhase::kRunning || metrics.phase == RunPhase::kCutting) {
    const double rate = metrics.edges_per_second.value_or(0);
    const int64_t left = metrics.run_edges - metrics.run_committed_edges;
    if (rate > 0) metrics.eta_seconds = static_cast<double>(left) / rate;
  }
  metrics.totals = totals_.edges() > 0 ? totals_ : totals_before_;

  metrics.sessions = static_cast<int64_t>(state_.sessions.size());
  metrics.grants = static_cast<int64_t>(state_.grants.size());
  for (const auto& [token, grant] : state_.grants) {
    metrics.oldest_grant_seconds =
        std::max(metrics.oldest_grant_seconds, seconds(now - counters_.MadeAt(token)));
  }
  for (const ServerRecord& server : state_.servers) {
    RunMetrics::Servers& role =
        server.info.role == ServerRole::kParam ? metrics.param_servers : metrics.partition_servers;
    ++(server.retired ? role.retired : IsLive(server) ? role.live : role.silent);
  }
  metrics.kept_bytes = state_.places.bytes();
  for (const auto& [token, manifest] : state_.manifests.manifests()) {
    if (manifest.state == Manifest::State::kPending) ++metrics.pending_checkpoints;
    if (manifest.state != Manifest::State::kCommitted) continue;
    if (token > state_.origin && manifest.generation != state_.generation) continue;
    metrics.checkpoint_version = std::max(metrics.checkpoint_version, manifest.version);
  }
  metrics.checkpoint_age_seconds = seconds(now - counters_.last_commit);
  return metrics;
}

}  // namespace weft
