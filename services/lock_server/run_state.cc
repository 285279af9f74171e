#include "services/lock_server/run_state.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

constexpr size_t kRememberedOutcomes = 8;

// A version is stored for nothing: not current, and no manifest names it.
void Forget(const PartitionVersion& version, RunState* state) {
  const bool current =
      state->versions.Has(version.key) && state->versions.current(version.key) == version.token;
  if (!current && !state->manifests.Holds(version)) state->places.Erase(version);
}

void EndGrant(Token token, bool count_attempt, RunState* state) {
  const auto grant = state->grants.find(token);
  if (grant == state->grants.end()) return;
  const auto session = state->sessions.find(grant->second.session);
  if (session != state->sessions.end()) std::erase(session->second.grants, token);
  if (!count_attempt) {
    for (const Bucket& bucket : grant->second.buckets) {
      const auto attempts = state->attempts.find(bucket);
      if (attempts != state->attempts.end() && --attempts->second == 0) {
        state->attempts.erase(attempts);
      }
    }
  }
  state->grants.erase(grant);
}

void Apply(const SessionBegan& began, RunState* state) {
  state->sessions[began.session].name = began.name;
}

void Apply(const SessionEnded& ended, RunState* state) {
  const auto session = state->sessions.find(ended.session);
  if (session == state->sessions.end()) return;
  const std::vector<Token> grants = session->second.grants;
  for (const Token token : grants) EndGrant(token, /*count_attempt=*/true, state);
  state->sessions.erase(ended.session);
}

void Apply(const GrantMade& made, RunState* state) {
  SessionRecord& session = state->sessions[made.grant.session];
  session.number = made.number;
  session.granted = made.token;
  session.grants.push_back(made.token);
  for (const Bucket& bucket : made.grant.buckets) ++state->attempts[bucket];
  state->grants.emplace(made.token, made.grant);
}

void Apply(const GrantsVoided& voided, RunState* state) {
  for (const Token token : voided.tokens) EndGrant(token, !voided.given_back, state);
}

void Apply(const GrantReleased& released, RunState* state) {
  for (const VersionInfo& info : released.places) state->places.Set(info.version, info.shards);
  for (const PartitionKey& key : released.stored) {
    const PartitionVersion old = {key, state->versions.current(key)};
    state->versions.SetCurrent(key, released.token);
    Forget(old, state);
  }
  for (const BucketStats& bucket : released.buckets) {
    state->done.push_back({released.token, bucket});
    state->attempts.erase(bucket.bucket);
  }
  EndGrant(released.token, /*count_attempt=*/true, state);
  const auto session = state->sessions.find(released.session);
  if (session == state->sessions.end()) return;
  std::vector<ReleaseOutcome>& outcomes = session->second.outcomes;
  outcomes.push_back({released.token, released.pass_done});
  if (outcomes.size() > kRememberedOutcomes) outcomes.erase(outcomes.begin());
}

void Apply(const RunFailed& failed, RunState* state) {
  state->failure = failed.failure;
  state->grants.clear();
  for (auto& [id, session] : state->sessions) session.grants.clear();
}

void EndPush(RunState* state) {
  if (state->push.token == kInitialToken) return;
  state->places.Retain(
      [&](const PartitionVersion& version) { return version.token != state->push.token; });
  state->push = {};
}

void Apply(const RunPaused& paused, RunState* state) {
  state->paused = paused.paused;
  if (!paused.paused) EndPush(state);
}

void Apply(const ServerRegistered& registered, RunState* state) {
  const ServerInfo& server = registered.server;
  state->places.RemovePassing(server.store_id, server.incarnation);
  for (ServerRecord& record : state->servers) {
    if (record.info.store_id != server.store_id) continue;
    record.info = server;
    return;
  }
  // A parameter server takes the place of one that is gone for ever.
  for (ServerRecord& record : state->servers) {
    if (!record.retired || server.role != ServerRole::kParam ||
        record.info.role != ServerRole::kParam) {
      continue;
    }
    record = {server, false};
    return;
  }
  state->servers.push_back({server, false});
}

void Apply(const ServerLost& lost, RunState* state) {
  state->places.RemoveStore(lost.store);
  for (ServerRecord& record : state->servers) {
    if (record.info.store_id == lost.store && lost.retired) record.retired = true;
  }
}

void Apply(const PlacesChanged& changed, RunState* state) {
  for (const PlacesChanged::Change& change : changed.changes) {
    if (change.gone) {
      state->places.RemovePlace(change.shard, change.place.store_id);
    } else {
      state->places.AddPlace(change.shard, change.place);
    }
  }
}

void Apply(const VersionStored& stored, RunState* state) {
  state->places.Set(stored.version.version, stored.version.shards);
}

void Apply(const ManifestBegan& began, RunState* state) { state->manifests.Put(began.manifest); }

void Apply(const ManifestCommitted& committed, RunState* state) {
  for (const Token token : committed.removed) {
    for (const PartitionVersion& version : state->manifests.Remove(token)) Forget(version, state);
  }
  if (!committed.removed.empty()) {
    state->places.Retain([&](const PartitionVersion& version) {
      return version.key.entity_type != kManifestType || HoldsManifestBlob(*state, version);
    });
  }
  Manifest* manifest = state->manifests.Find(committed.token);
  if (manifest == nullptr) return;
  manifest->state = Manifest::State::kCommitted;
  state->versions.SetAllCommitted(manifest->versions);
}

void Apply(const ManifestMarked& marked, RunState* state) {
  Manifest* manifest = state->manifests.Find(marked.token);
  if (manifest == nullptr) return;
  if (marked.preserved.has_value()) manifest->preserved = *marked.preserved;
  for (const auto& [name, value] : marked.metrics) manifest->metrics[name] = value;
}

void Apply(const ParametersReady&, RunState* state) {
  state->parameters_ready = true;
  if (!state->paused) EndPush(state);
}

void Apply(const ImportBegan& began, RunState* state) {
  state->places.Retain([](const PartitionVersion& v) { return v.key.entity_type != kEdgesType; });
  state->edge_import = {began.token, false, began.edges};
}

void Apply(const EdgesAdded& added, RunState* state) {
  for (const VersionInfo& bucket : added.buckets) state->places.Set(bucket.version, bucket.shards);
}

void Apply(const ImportCompleted&, RunState* state) { state->edge_import.complete = true; }

void Apply(const PushBegan& began, RunState* state) {
  EndPush(state);
  state->push = began.push;
}

}  // namespace

const GrantRecord::Base* GrantRecord::Find(PartitionKey key) const {
  const auto base = std::ranges::find(bases, key, &Base::key);
  return base == bases.end() ? nullptr : &*base;
}

void ApplyChange(const RunChange& change, RunState* state) {
  std::visit([&](const auto& c) { Apply(c, state); }, change);
}

void RewindTo(const Manifest& manifest, RunState* state) {
  ++state->generation;
  state->origin = manifest.token;
  state->parameters_ready = false;
  state->failure.reset();
  state->sessions.clear();
  state->grants.clear();
  state->attempts.clear();
  state->position = manifest.position;
  state->done = manifest.done;
  state->early_stopping = manifest.early_stopping;
  state->versions.SetAllCommitted(manifest.versions);
  state->versions.SetAllCurrent(manifest.versions);

  std::vector<Token> gone;
  for (const auto& [token, other] : state->manifests.manifests()) {
    const bool pending = other.state == Manifest::State::kPending;
    if (pending || (token > state->origin && !other.preserved)) gone.push_back(token);
  }
  for (const Token token : gone) state->manifests.Remove(token);
  state->places.Retain([&](const PartitionVersion& version) {
    return version.key.entity_type == kEdgesType || state->manifests.Holds(version) ||
           HoldsManifestBlob(*state, version) ||
           (version.token == state->push.token && version.token != kInitialToken);
  });
}

bool HoldsManifestBlob(const RunState& state, const PartitionVersion& version) {
  return version.key.entity_type == kManifestType && state.manifests.Find(version.token) != nullptr;
}

}  // namespace weft
