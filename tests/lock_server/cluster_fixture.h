// A run in a cluster, for tests: the coordinator on a clock that stands still, a store that can
// lose what was not synced, servers and trainers that say what the test wants them to say.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/common/check.h"
#include "services/lock_server/run_coordinator.h"
#include "tests/lock_server/coordinator_fixture.h"
#include "tests/lock_server/log_run_store.h"
#include "tests/testing/fake_clock.h"

namespace weft::testing {

inline RunPlan MakeClusterPlan(int partitions, int param_servers = 0) {
  RunPlan plan = MakePlan(partitions);
  plan.commit_seconds = 0;
  plan.cluster.emplace();
  plan.cluster->num_param_servers = param_servers;
  plan.cluster->checkpoint_interval = {};
  return plan;
}

inline ServerInfo PartitionServer(StoreId store, Incarnation incarnation, bool durable = true) {
  return {ServerRole::kPartition, store, incarnation, "host:" + std::to_string(store), durable};
}

inline ServerInfo ParamServer(StoreId store, Incarnation incarnation = 101) {
  return {ServerRole::kParam, store, incarnation, "host:" + std::to_string(store), true};
}

// A version in two shards, both at this place.
inline VersionInfo StoredAt(PartitionVersion version, const std::vector<Place>& places) {
  VersionInfo info;
  info.version = version;
  info.shards = {{0, 0, 5, 500, 1, places}, {1, 5, 5, 500, 2, places}};
  return info;
}

struct ClusterRun {
  explicit ClusterRun(RunPlan plan) : ClusterRun(plan, MakeState(plan.num_lhs)) {}
  ClusterRun(RunPlan plan, RunState first) : plan(std::move(plan)), first(std::move(first)) {
    Restart();
  }

  // A new life from what was synced.
  void Restart() {
    coordinator.reset();
    store.LoseUnsynced();
    const std::optional<RunState> stored = *store.Load();
    auto started = RunCoordinator::Start(plan, stored.value_or(first), &store, clock);
    WEFT_CHECK(started.ok());
    coordinator = *std::move(started);
  }

  void Sync() { WEFT_CHECK(store.Sync().ok()); }

  // What has happened since the last call, as people read it.
  std::vector<std::string> TakeLines() {
    std::vector<std::string> lines;
    for (const LogEvent& event : coordinator->TakeEvents()) lines.push_back(ToText(event));
    return lines;
  }

  // Time passes as it does when the lock server is not stopped; partition servers are heard of.
  void Pass(absl::Duration duration) {
    const absl::Duration tick = absl::FromChrono(SessionLeases::kTick);
    for (absl::Duration left = duration; left > absl::ZeroDuration(); left -= tick) {
      clock.Advance(std::min(left, tick));
      WEFT_CHECK(coordinator->Tick().ok());
      for (const auto& [store, server] : heard) {
        coordinator->Sync({server, 0, {}, {}, {}}).IgnoreError();
      }
    }
    Sync();
  }

  absl::StatusOr<StoreInstructions> Report(const ServerInfo& server,
                                           std::vector<OrderResult> results = {},
                                           std::vector<ShardName> persisted = {}) {
    StoreReport report;
    report.server = server;
    report.results = std::move(results);
    report.persisted = std::move(persisted);
    auto instructions = coordinator->Sync(report);
    if (instructions.ok()) heard[server.store_id] = server;
    Sync();
    return instructions;
  }
  absl::StatusOr<StoreInstructions> ReportParams(const ServerInfo& server, Generation generation,
                                                 int64_t first_open_pass,
                                                 std::vector<OrderResult> results = {}) {
    StoreReport report;
    report.server = server;
    report.params = {generation, first_open_pass, {}};
    report.results = std::move(results);
    auto instructions = coordinator->Sync(report);
    Sync();
    return instructions;
  }

  void Register(SessionId session) {
    Registration registration;
    registration.incarnation = session;
    registration.name = "t";
    WEFT_CHECK(coordinator->Register(registration).ok());
    Sync();
  }
  absl::StatusOr<AcquireResult> Acquire(SessionId session, uint64_t number,
                                        std::vector<PartitionVersion> resident = {}) {
    auto result =
        coordinator->Acquire(session, {number, std::move(resident), absl::ZeroDuration()});
    Sync();
    return result;
  }
  Grant MustAcquire(SessionId session, uint64_t number,
                    std::vector<PartitionVersion> resident = {}) {
    const auto result = Acquire(session, number, std::move(resident));
    WEFT_CHECK(result.ok() && result->grant.has_value());
    return *result->grant;
  }
  absl::StatusOr<ReleaseResult> Release(SessionId session, const Grant& grant,
                                        const std::vector<Place>& places) {
    ReleaseRequest request = ReleaseOf(grant);
    for (const PartitionKey& key : request.stored) {
      request.places.push_back(StoredAt({key, grant.token}, places));
    }
    auto result = coordinator->Release(session, request);
    Sync();
    return result;
  }
  // Trains all that is left of the pass.
  void FinishPass(SessionId session, uint64_t* number, const std::vector<Place>& places) {
    const int64_t pass = coordinator->progress().position.pass;
    while (coordinator->phase() == RunPhase::kRunning &&
           coordinator->progress().position.pass == pass) {
      WEFT_CHECK(Release(session, MustAcquire(session, ++*number), places).ok());
    }
  }

  const RunPlan plan;
  const RunState first;
  std::map<StoreId, ServerInfo> heard;
  FakeClock clock;
  LogRunStore store;
  std::unique_ptr<RunCoordinator> coordinator;
};

// The order of this kind, or nothing.
template <typename Order>
std::optional<std::pair<uint64_t, Order>> FindOrder(const StoreInstructions& instructions) {
  for (const NumberedOrder& order : instructions.orders) {
    if (const auto* found = std::get_if<Order>(&order.order)) return std::pair(order.id, *found);
  }
  return std::nullopt;
}

}  // namespace weft::testing
