// RunState is everything durable about a run: what it trains, how far it has come, which version of
// each partition is current and where it lies, who trains what, and to what the run can go back. A
// RunChange is one durable step from a state to the next.
//
// The state as of the last acknowledged change, and nothing else, is what a restart sees. On one
// machine sessions and grants end with the process: their changes are applied and never stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/cluster_types.h"
#include "services/common/run_stats.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"
#include "services/lock_server/early_stopping.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/manifest_catalog.h"
#include "services/lock_server/place_table.h"
#include "services/lock_server/run_shape.h"
#include "services/lock_server/version_table.h"

namespace weft {

using SessionId = Incarnation;  // of the trainer's process

// The input directories of edges, in the order in which an epoch visits them.
struct EdgePath {
  std::string path;
  uint64_t digest = 0;  // of the edges per bucket
  bool operator==(const EdgePath&) const = default;
};

// An answer to a release.
struct ReleaseOutcome {
  Token token = kInitialToken;
  bool pass_done = false;

  bool operator==(const ReleaseOutcome&) const = default;
};

// The edges that partition servers hold, of a run whose edge paths are "cluster://NAME": what an
// import brings. Its buckets are versions (kEdgesType) in the place table.
struct ImportedEdges {
  struct Path {
    std::string path;
    uint64_t digest = 0;  // as EdgePath's
    int64_t buckets = 0;  // with edges
    int64_t edges = 0;
    bool operator==(const Path&) const = default;
  };
  std::vector<Path> paths;
  std::vector<std::vector<int64_t>> entity_counts;  // [entity type][partition]
  int64_t num_dynamic_relations = 0;
  uint64_t entities_digest = 0;
  bool operator==(const ImportedEdges&) const = default;
};

struct EdgeImport {
  Token token = kInitialToken;  // of its buckets' versions; 0: none has begun
  bool complete = false;
  ImportedEdges edges;
};

// A checkpoint that is being brought from outside. Its versions are in the place table.
struct CheckpointPush {
  Token token = kInitialToken;  // of its versions; 0: none is under way
  std::string request_id;
};

struct SessionRecord {
  std::string name;
  uint64_t number = 0;                   // of the last acquire that was answered with a grant
  Token granted = kInitialToken;         // that grant
  std::vector<Token> grants;             // live, oldest first
  std::vector<ReleaseOutcome> outcomes;  // the last ones, oldest first
};

struct GrantRecord {
  struct Base {
    PartitionKey key;
    Token token = kInitialToken;  // current, or made by an earlier live grant of the session
    GrantedPartition::Source source = GrantedPartition::Source::kInitialise;

    bool operator==(const Base&) const = default;
  };
  SessionId session = 0;
  std::vector<Bucket> buckets;
  std::vector<Base> bases;  // every partition that the buckets use

  // nullptr: no bucket uses it.
  const Base* Find(PartitionKey key) const;

  bool operator==(const GrantRecord&) const = default;
};

struct ServerRecord {
  ServerInfo info;       // of the last incarnation that registered
  bool retired = false;  // will never come back

  bool operator==(const ServerRecord&) const = default;
};

struct RunState {
  std::string run_id;  // 32 hexadecimal digits, random
  uint64_t seed = 0;
  Term term = 0;  // +1 at each start
  Generation generation = 1;
  RunShape shape;
  std::vector<EdgePath> edge_paths;
  // The pass under way, or the next one. `position.pass` passes are over.
  PassPosition position;
  std::vector<DoneBucket> done;  // of this pass, in the order of their releases
  VersionTable versions;
  EarlyStoppingState early_stopping;
  // Versions whose files nobody needs any more; they may be there still. On one machine.
  std::vector<int64_t> obsolete_versions;
  std::optional<TrainingFailure> failure;
  bool paused = false;

  absl::flat_hash_map<SessionId, SessionRecord> sessions;
  absl::flat_hash_map<Token, GrantRecord> grants;
  // How often a bucket of this pass was granted and not handed in.
  absl::flat_hash_map<Bucket, int> attempts;

  // In a cluster.
  std::string config_json;  // the run's configuration
  // By edge path: edges per bucket, [lhs partition, rhs partition], of all edge chunks. Empty: the
  // run waits for its edges; shape, position and versions are set when they are there.
  std::vector<std::vector<int64_t>> bucket_edges;
  EdgeImport edge_import;
  std::vector<ServerRecord> servers;  // parameter servers in the order that placement follows
  PlaceTable places;
  ManifestCatalog manifests;
  Token origin = kInitialToken;   // the manifest that this generation goes on from
  bool parameters_ready = false;  // all parameter servers have had this generation's content
  std::string last_rollback;      // request id of the last rollback, or push
  CheckpointPush push;
};

// Each is one durable step. What a change says has been checked.
struct SessionBegan {
  SessionId session = 0;
  std::string name;
};
// Its grants end with it.
struct SessionEnded {
  SessionId session = 0;
};
struct GrantMade {
  Token token = kInitialToken;
  uint64_t number = 0;  // of the request
  GrantRecord grant;
};
struct GrantsVoided {
  std::vector<Token> tokens;
  bool given_back = false;  // by the trainer: not an attempt that failed
};
// A grant was released: its versions are current, its buckets done.
struct GrantReleased {
  Token token = kInitialToken;
  std::vector<PartitionKey> stored;
  std::vector<BucketStats> buckets;
  std::vector<VersionInfo> places;  // of `stored`, in a cluster
  SessionId session = 0;
  bool pass_done = false;
};
// Training cannot go on; all grants end.
struct RunFailed {
  TrainingFailure failure;
};
struct RunPaused {
  bool paused = false;
};
// A server, or a new incarnation of it: what the old one held in memory is gone.
struct ServerRegistered {
  ServerInfo server;
};
// What lay there is lost; `retired`: for ever.
struct ServerLost {
  StoreId store = 0;
  bool retired = false;
};
struct PlacesChanged {
  struct Change {
    ShardName shard;
    Place place;
    bool gone = false;  // from that store
  };
  std::vector<Change> changes;
};
// A snapshot of a parameter server is stored.
struct VersionStored {
  VersionInfo version;
};
struct ManifestBegan {
  Manifest manifest;
};
struct ManifestCommitted {
  Token token = kInitialToken;
  std::vector<Token> removed;  // that nobody needs any more
};
struct ManifestMarked {
  Token token = kInitialToken;
  std::optional<bool> preserved;
  std::map<std::string, double> metrics;  // to be added
};
struct ParametersReady {};
// Takes the place of an import that is not complete.
struct ImportBegan {
  Token token = kInitialToken;
  ImportedEdges edges;
};
struct EdgesAdded {
  std::vector<VersionInfo> buckets;
};
// The run can begin: see MakeClusterRun.
struct ImportCompleted {};
// Takes the place of a push that is not committed. A push ends when the run goes on without it.
struct PushBegan {
  CheckpointPush push;
};

using RunChange =
    std::variant<SessionBegan, SessionEnded, GrantMade, GrantsVoided, GrantReleased, RunFailed,
                 RunPaused, ServerRegistered, ServerLost, PlacesChanged, VersionStored,
                 ManifestBegan, ManifestCommitted, ManifestMarked, ParametersReady, ImportBegan,
                 EdgesAdded, ImportCompleted, PushBegan>;

void ApplyChange(const RunChange& change, RunState* state);

// Goes back to `manifest`, in a new generation: whoever was at work is forgotten, what came after
// the manifest is removed, but for what is preserved.
void RewindTo(const Manifest& manifest, RunState* state);

// Of the version that is a manifest's own bytes (StoreManifest): whether that manifest is kept.
bool HoldsManifestBlob(const RunState& state, const PartitionVersion& version);

}  // namespace weft
