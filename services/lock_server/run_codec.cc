#include "services/lock_server/run_codec.h"

#include <google/protobuf/message.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/lock_server/run_codec_parts.h"
#include "weft/v1/run_state.pb.h"

namespace weft {
namespace {

using run_codec::Decode;
using run_codec::Encode;

constexpr uint32_t kFormat = 1;

void EncodeInto(const RunState& from, v1::StoredRunState* to) {
  to->set_format(kFormat);
  to->set_run_id(from.run_id);
  to->set_seed(from.seed);
  to->set_term(from.term);
  Encode(from.shape, to->mutable_shape());
  for (const EdgePath& path : from.edge_paths) {
    v1::StoredEdgePath* p = to->add_edge_paths();
    p->set_path(path.path);
    p->set_digest(path.digest);
  }
  Encode(from.position, to->mutable_position());
  for (const DoneBucket& bucket : from.done) Encode(bucket, to->add_done());
  for (const PartitionKey& key : from.versions.keys()) {
    const Token current = from.versions.current(key);
    const Token committed = from.versions.committed(key);
    if (current == kInitialToken && committed == kInitialToken) continue;
    v1::StoredVersion* version = to->add_versions();
    Encode(key, version->mutable_partition());
    version->set_current(current);
    version->set_committed(committed);
  }
  Encode(from.early_stopping, to->mutable_early_stopping());
  for (const int64_t version : from.obsolete_versions) to->add_obsolete_versions(version);
  if (from.failure.has_value()) Encode(*from.failure, to->mutable_failure());
  to->set_paused(from.paused);
  to->set_generation(from.generation);
  for (const auto& [id, session] : from.sessions) Encode(id, session, to->add_sessions());
  for (const auto& [token, grant] : from.grants) Encode(token, grant, to->add_grants());
  for (const auto& [bucket, attempts] : from.attempts) {
    v1::StoredAttempts* a = to->add_attempts();
    Encode(bucket, a->mutable_bucket());
    a->set_attempts(attempts);
  }
  to->set_config_json(from.config_json);
  for (const ServerRecord& server : from.servers) Encode(server, to->add_servers());
  for (const auto& [version, shards] : from.places.versions()) {
    Encode(VersionInfo{version, shards}, to->add_places());
  }
  for (const auto& [token, manifest] : from.manifests.manifests()) {
    Encode(manifest, to->add_manifests());
  }
  to->set_origin(from.origin);
  to->set_parameters_ready(from.parameters_ready);
  to->set_last_rollback(from.last_rollback);
  for (const std::vector<int64_t>& edges : from.bucket_edges) {
    to->add_bucket_edges()->mutable_edges()->Add(edges.begin(), edges.end());
  }
  if (from.edge_import.token != kInitialToken) {
    Encode(from.edge_import, to->mutable_edge_import());
  }
  if (from.push.token != kInitialToken) Encode(from.push, to->mutable_push());
}

void DecodeCluster(const v1::StoredRunState& from, RunState* to) {
  to->paused = from.paused();
  to->generation = std::max<Generation>(1, from.generation());
  for (const v1::StoredSession& session : from.sessions()) {
    to->sessions[session.session()] = Decode(session);
  }
  std::vector<std::pair<Token, SessionId>> grants;
  for (const v1::StoredGrant& grant : from.grants()) {
    to->grants[grant.token()] = Decode(grant);
    grants.emplace_back(grant.token(), grant.session());
  }
  std::ranges::sort(grants);
  for (const auto& [token, session] : grants) to->sessions[session].grants.push_back(token);
  for (const v1::StoredAttempts& a : from.attempts()) {
    to->attempts[Decode(a.bucket())] = a.attempts();
  }
  to->config_json = from.config_json();
  for (const v1::StoredServer& server : from.servers()) to->servers.push_back(Decode(server));
  for (const v1::StoredVersionPlaces& places : from.places()) {
    VersionInfo info = Decode(places);
    to->places.Set(info.version, std::move(info.shards));
  }
  for (const v1::StoredManifest& manifest : from.manifests()) {
    to->manifests.Put(Decode(manifest));
  }
  to->origin = from.origin();
  to->parameters_ready = from.parameters_ready();
  to->last_rollback = from.last_rollback();
  for (const v1::StoredBucketEdges& edges : from.bucket_edges()) {
    to->bucket_edges.emplace_back(edges.edges().begin(), edges.edges().end());
  }
  to->edge_import = Decode(from.edge_import());
  to->push = Decode(from.push());
}

absl::StatusOr<RunRecord> DecodeState(const v1::StoredRunState& from) {
  if (from.format() != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        "has format ", from.format(), ", but this program knows format ", kFormat, " only"));
  }
  RunState to;
  to.run_id = from.run_id();
  to.seed = from.seed();
  to.term = from.term();
  to.shape = Decode(from.shape());
  for (const v1::StoredEdgePath& path : from.edge_paths()) {
    to.edge_paths.push_back({path.path(), path.digest()});
  }
  to.position = Decode(from.position());
  for (const v1::StoredDoneBucket& bucket : from.done()) {
    to.done.push_back(Decode(bucket));
  }
  std::vector<int> num_partitions;
  for (const RunShape::EntityType& type : to.shape.entity_types) {
    num_partitions.push_back(type.num_partitions);
  }
  to.versions = VersionTable(num_partitions);
  for (const v1::StoredVersion& version : from.versions()) {
    const PartitionKey key = Decode(version.partition());
    if (!to.versions.Has(key)) return absl::DataLossError("has a version of no partition");
    to.versions.SetCurrent(key, version.current());
    to.versions.SetCommitted(key, version.committed());
  }
  to.early_stopping = Decode(from.early_stopping());
  to.obsolete_versions.assign(from.obsolete_versions().begin(), from.obsolete_versions().end());
  if (from.has_failure()) to.failure = Decode(from.failure());
  DecodeCluster(from, &to);
  return RunRecord(std::move(to));
}

// --- Changes: one pair of functions for each ---

void EncodeInto(const SessionBegan& from, v1::RunRecord* to) {
  to->mutable_session_began()->set_session(from.session);
  to->mutable_session_began()->set_name(from.name);
}

void EncodeInto(const SessionEnded& from, v1::RunRecord* to) {
  to->mutable_session_ended()->set_session(from.session);
}

void EncodeInto(const GrantMade& from, v1::RunRecord* to) {
  Encode(from.token, from.grant, to->mutable_grant_made()->mutable_grant());
  to->mutable_grant_made()->set_number(from.number);
}

void EncodeInto(const GrantsVoided& from, v1::RunRecord* to) {
  for (const Token token : from.tokens) to->mutable_grants_voided()->add_tokens(token);
  to->mutable_grants_voided()->set_given_back(from.given_back);
}

GrantsVoided Decode(const v1::StoredGrantsVoided& from) {
  return {{from.tokens().begin(), from.tokens().end()}, from.given_back()};
}

void EncodeInto(const GrantReleased& from, v1::RunRecord* record) {
  v1::StoredGrantReleased* to = record->mutable_released();
  to->set_token(from.token);
  for (const PartitionKey& key : from.stored) Encode(key, to->add_stored());
  for (const BucketStats& bucket : from.buckets) Encode(bucket, to->add_buckets());
  for (const VersionInfo& version : from.places) Encode(version, to->add_places());
  to->set_session(from.session);
  to->set_pass_done(from.pass_done);
}

GrantReleased Decode(const v1::StoredGrantReleased& from) {
  GrantReleased to;
  to.token = from.token();
  for (const v1::StoredPartition& key : from.stored()) to.stored.push_back(Decode(key));
  for (const v1::StoredBucketStats& bucket : from.buckets()) to.buckets.push_back(Decode(bucket));
  for (const v1::StoredVersionPlaces& v : from.places()) to.places.push_back(Decode(v));
  to.session = from.session();
  to.pass_done = from.pass_done();
  return to;
}

void EncodeInto(const RunFailed& from, v1::RunRecord* to) {
  Encode(from.failure, to->mutable_failed()->mutable_failure());
}

void EncodeInto(const RunPaused& from, v1::RunRecord* to) {
  to->mutable_paused()->set_paused(from.paused);
}

void EncodeInto(const ServerRegistered& from, v1::RunRecord* to) {
  Encode(ServerRecord{from.server, false}, to->mutable_server_registered());
}

void EncodeInto(const ServerLost& from, v1::RunRecord* to) {
  to->mutable_server_lost()->set_store_id(from.store);
  to->mutable_server_lost()->set_retired(from.retired);
}

void EncodeInto(const PlacesChanged& from, v1::RunRecord* to) {
  for (const PlacesChanged::Change& change : from.changes) {
    v1::StoredPlaceChange* c = to->mutable_places_changed()->add_changes();
    Encode(change.shard.version.key, c->mutable_partition());
    c->set_token(change.shard.version.token);
    c->set_shard(change.shard.shard);
    Encode(change.place, c->mutable_place());
    c->set_gone(change.gone);
  }
}

PlacesChanged Decode(const v1::StoredPlacesChanged& from) {
  PlacesChanged to;
  for (const v1::StoredPlaceChange& c : from.changes()) {
    to.changes.push_back(
        {{{Decode(c.partition()), c.token()}, c.shard()}, Decode(c.place()), c.gone()});
  }
  return to;
}

void EncodeInto(const VersionStored& from, v1::RunRecord* to) {
  Encode(from.version, to->mutable_version_stored());
}

void EncodeInto(const ManifestBegan& from, v1::RunRecord* to) {
  Encode(from.manifest, to->mutable_manifest_began());
}

void EncodeInto(const ManifestCommitted& from, v1::RunRecord* to) {
  to->mutable_manifest_committed()->set_token(from.token);
  for (const Token token : from.removed) to->mutable_manifest_committed()->add_removed(token);
}

ManifestCommitted Decode(const v1::StoredManifestCommitted& from) {
  return {from.token(), {from.removed().begin(), from.removed().end()}};
}

void EncodeInto(const ManifestMarked& from, v1::RunRecord* record) {
  v1::StoredManifestMarked* to = record->mutable_manifest_marked();
  to->set_token(from.token);
  if (from.preserved.has_value()) to->set_preserved(*from.preserved);
  for (const auto& [name, value] : from.metrics) (*to->mutable_metrics())[name] = value;
}

ManifestMarked Decode(const v1::StoredManifestMarked& from) {
  ManifestMarked to;
  to.token = from.token();
  if (from.has_preserved()) to.preserved = from.preserved();
  to.metrics.insert(from.metrics().begin(), from.metrics().end());
  return to;
}

void EncodeInto(const ParametersReady&, v1::RunRecord* to) { to->mutable_parameters_ready(); }

void EncodeInto(const ImportBegan& from, v1::RunRecord* to) {
  Encode(EdgeImport{from.token, false, from.edges}, to->mutable_import_began());
}

ImportBegan DecodeBegan(const v1::StoredEdgeImport& from) {
  EdgeImport import = Decode(from);
  return {import.token, std::move(import.edges)};
}

void EncodeInto(const EdgesAdded& from, v1::RunRecord* to) {
  for (const VersionInfo& bucket : from.buckets) {
    Encode(bucket, to->mutable_edges_added()->add_buckets());
  }
}

EdgesAdded Decode(const v1::StoredEdgesAdded& from) {
  EdgesAdded to;
  for (const v1::StoredVersionPlaces& bucket : from.buckets()) to.buckets.push_back(Decode(bucket));
  return to;
}

void EncodeInto(const ImportCompleted&, v1::RunRecord* to) { to->mutable_import_completed(); }

void EncodeInto(const PushBegan& from, v1::RunRecord* to) {
  Encode(from.push, to->mutable_push_began());
}

std::string Bytes(const v1::RunRecord& message) {
  std::string bytes;
  const bool ok = message.SerializeToString(&bytes);
  WEFT_CHECK(ok);
  return bytes;
}

}  // namespace

std::string EncodeState(const RunState& state) {
  v1::RunRecord message;
  EncodeInto(state, message.mutable_state());
  return Bytes(message);
}

std::string EncodeChange(const RunChange& change) {
  v1::RunRecord message;
  std::visit([&](const auto& c) { EncodeInto(c, &message); }, change);
  return Bytes(message);
}

absl::StatusOr<RunRecord> DecodeRecord(absl::string_view bytes) {
  v1::RunRecord message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("cannot be parsed");
  }
  using Record = v1::RunRecord;
  const auto change = [](auto c) { return RunRecord(RunChange(std::move(c))); };
  switch (message.record_case()) {
    case Record::kState:
      return DecodeState(message.state());
    case Record::kReleased:
      return change(Decode(message.released()));
    case Record::kFailed:
      return change(RunFailed{Decode(message.failed().failure())});
    case Record::kSessionBegan:
      return change(
          SessionBegan{message.session_began().session(), message.session_began().name()});
    case Record::kSessionEnded:
      return change(SessionEnded{message.session_ended().session()});
    case Record::kGrantMade:
      return change(GrantMade{message.grant_made().grant().token(), message.grant_made().number(),
                              Decode(message.grant_made().grant())});
    case Record::kGrantsVoided:
      return change(Decode(message.grants_voided()));
    case Record::kPaused:
      return change(RunPaused{message.paused().paused()});
    case Record::kServerRegistered:
      return change(ServerRegistered{Decode(message.server_registered()).info});
    case Record::kServerLost:
      return change(ServerLost{message.server_lost().store_id(), message.server_lost().retired()});
    case Record::kPlacesChanged:
      return change(Decode(message.places_changed()));
    case Record::kVersionStored:
      return change(VersionStored{Decode(message.version_stored())});
    case Record::kManifestBegan:
      return change(ManifestBegan{Decode(message.manifest_began())});
    case Record::kManifestCommitted:
      return change(Decode(message.manifest_committed()));
    case Record::kManifestMarked:
      return change(Decode(message.manifest_marked()));
    case Record::kParametersReady:
      return change(ParametersReady{});
    case Record::kImportBegan:
      return change(DecodeBegan(message.import_began()));
    case Record::kEdgesAdded:
      return change(Decode(message.edges_added()));
    case Record::kImportCompleted:
      return change(ImportCompleted{});
    case Record::kPushBegan:
      return change(PushBegan{Decode(message.push_began())});
    case Record::RECORD_NOT_SET:
      break;
  }
  return absl::DataLossError("is of an unknown kind");
}

}  // namespace weft
