#include "services/lock_server/run_state.h"

namespace weft {
namespace {

void Apply(const GrantReleased& released, RunState* state) {
  for (const PartitionKey& key : released.stored) state->versions.SetCurrent(key, released.token);
  for (const BucketStats& bucket : released.buckets) {
    state->done.push_back({released.token, bucket});
  }
}

void Apply(const RunFailed& failed, RunState* state) { state->failure = failed.failure; }

}  // namespace

void ApplyChange(const RunChange& change, RunState* state) {
  std::visit([&](const auto& c) { Apply(c, state); }, change);
}

}  // namespace weft
