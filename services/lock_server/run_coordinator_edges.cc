// The edges that partition servers hold: how an import brings them, and what is told of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {
namespace {

std::string Paths(const std::vector<EdgePath>& paths) {
  return absl::StrJoin(paths, ", ",
                       [](std::string* out, const EdgePath& path) { out->append(path.path); });
}

// What two lists of settings differ in first; empty when they do not.
std::string FirstDifference(std::vector<std::string> ours, std::vector<std::string> theirs) {
  std::ranges::sort(ours);
  std::ranges::sort(theirs);
  std::vector<std::string> only_ours;
  std::vector<std::string> only_theirs;
  std::ranges::set_difference(ours, theirs, std::back_inserter(only_ours));
  std::ranges::set_difference(theirs, ours, std::back_inserter(only_theirs));
  if (only_ours.empty() && only_theirs.empty()) return "";
  const auto first = [](const std::vector<std::string>& list) {
    return list.empty() ? std::string("nothing of it") : list.front();
  };
  return absl::StrCat("the run has ", first(only_ours), ", the import ", first(only_theirs));
}

bool SameShards(const PlaceTable::Shards& a, const PlaceTable::Shards& b) {
  return std::ranges::equal(a, b, [](const ShardInfo& x, const ShardInfo& y) {
    return x.num_rows == y.num_rows && x.size_bytes == y.size_bytes && x.xxh3 == y.xxh3;
  });
}

}  // namespace

std::string RunCoordinator::MissingEdges() const {
  return absl::StrCat(
      "waits for the edges of ", Paths(state_.edge_paths),
      ": `weft import CONFIG INPUT... --to ADDRESS` of this lock server brings them");
}

absl::StatusOr<RunCoordinator::ImportTarget> RunCoordinator::BeginImport(
    const ImportedEdges& edges, const std::vector<std::string>& schema) {
  MutexLock lock(&mu_);
  const EdgeImport& import = state_.edge_import;
  if (!AwaitsEdges() && import.token == kInitialToken) {
    return absl::FailedPreconditionError(
        absl::StrCat("the run reads its edges from folders (", Paths(state_.edge_paths), ")"));
  }
  const std::string difference = FirstDifference(plan_.cluster->import_schema, schema);
  if (!difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the import was made with another configuration: ", difference));
  }
  std::vector<std::string> ours;
  std::vector<std::string> theirs;
  for (const EdgePath& path : state_.edge_paths) ours.push_back(path.path);
  for (const ImportedEdges::Path& path : edges.paths) theirs.push_back(path.path);
  if (ours != theirs) {
    return absl::FailedPreconditionError(absl::StrCat("the run has edge_paths [",
                                                      absl::StrJoin(ours, ", "), "], the import [",
                                                      absl::StrJoin(theirs, ", "), "]"));
  }
  if (edges.entity_counts.size() != state_.shape.entity_types.size()) {
    return absl::InvalidArgumentError("entity counts that are not whole");
  }
  for (size_t t = 0; t < edges.entity_counts.size(); ++t) {
    if (edges.entity_counts[t].size() !=
        static_cast<size_t>(state_.shape.entity_types[t].num_partitions)) {
      return absl::InvalidArgumentError("entity counts that are not whole");
    }
  }
  if (import.token == kInitialToken || import.edges != edges) {
    if (import.complete) {
      return absl::AlreadyExistsError(
          absl::StrCat("the run has other edges in ", Paths(state_.edge_paths),
                       ", and keeps them; other edges are for another run, of a lock server with a "
                       "folder of its own"));
    }
    Event(LogEvent("import of edges begins", {{"paths", Paths(state_.edge_paths)}}));
    WEFT_RETURN_IF_ERROR(Write(ImportBegan{++last_token_, edges}));
    ++garbage_;
  }
  return ImportTarget{import.token, import.complete && lost_edges_ == 0, Replicas()};
}

absl::Status RunCoordinator::CheckEdges(const VersionInfo& bucket) const {
  const PartitionVersion& version = bucket.version;
  const auto num_buckets =
      static_cast<int64_t>(state_.edge_import.edges.paths.size()) * plan_.num_lhs * plan_.num_rhs;
  if (version.key.entity_type != kEdgesType || version.key.partition < 0 ||
      version.key.partition >= num_buckets || version.token != state_.edge_import.token ||
      bucket.shards.empty()) {
    return absl::InvalidArgumentError("no bucket of this import");
  }
  int64_t rows = 0;
  for (size_t i = 0; i < bucket.shards.size(); ++i) {
    const ShardInfo& shard = bucket.shards[i];
    if (shard.shard != i || shard.first_row != rows || shard.num_rows <= 0) {
      return absl::InvalidArgumentError("shards that make no bucket");
    }
    rows += shard.num_rows;
    for (const Place& place : shard.places) {
      const ServerRecord* server = FindServer(place.store_id);
      if (place.incarnation != 0 || server == nullptr || server->retired) {
        return absl::FailedPreconditionError(
            "a bucket is stored at a place that is not registered, or not durable");
      }
    }
    if (shard.places.empty()) return absl::FailedPreconditionError("a bucket is stored nowhere");
  }
  const PlaceTable::Shards* before = state_.places.Find(version);
  if (before != nullptr && !SameShards(*before, bucket.shards)) {
    return absl::InvalidArgumentError("other edges than were added before");
  }
  return absl::OkStatus();
}

absl::Status RunCoordinator::AddEdges(Token token, const std::vector<VersionInfo>& buckets) {
  MutexLock lock(&mu_);
  if (token == kInitialToken || token != state_.edge_import.token) {
    return absl::AbortedError("another import has taken the place of this one");
  }
  for (const VersionInfo& bucket : buckets) WEFT_RETURN_IF_ERROR(CheckEdges(bucket));
  WEFT_RETURN_IF_ERROR(Write(EdgesAdded{buckets}));
  if (lost_edges_ > 0) CountLostEdges();
  return absl::OkStatus();
}

absl::Status RunCoordinator::CompleteImport(Token token) {
  MutexLock lock(&mu_);
  const EdgeImport& import = state_.edge_import;
  if (token == kInitialToken || token != import.token) {
    return absl::AbortedError("another import has taken the place of this one");
  }
  if (import.complete) return absl::OkStatus();
  const int64_t path_buckets = int64_t{plan_.num_lhs} * plan_.num_rhs;
  std::vector<ImportedEdges::Path> there(import.edges.paths.size());
  for (const auto& [version, shards] : state_.places.versions()) {
    if (version.key.entity_type != kEdgesType || !state_.places.IsReadable(version)) continue;
    ImportedEdges::Path& path = there[static_cast<size_t>(version.key.partition / path_buckets)];
    ++path.buckets;
    path.edges += shards.back().first_row + shards.back().num_rows;
  }
  for (size_t i = 0; i < there.size(); ++i) {
    const ImportedEdges::Path& path = import.edges.paths[i];
    if (there[i].buckets == path.buckets && there[i].edges == path.edges) continue;
    return absl::FailedPreconditionError(absl::StrCat(path.path, ": ", there[i].edges, " edges in ",
                                                      there[i].buckets, " buckets are there, of ",
                                                      path.edges, " in ", path.buckets));
  }
  Event(LogEvent("import of edges is complete", {{"paths", Paths(state_.edge_paths)}}));
  return Write(ImportCompleted{});
}

bool RunCoordinator::edges_arrived() const {
  MutexLock lock(&mu_);
  return AwaitsEdges() && state_.edge_import.complete;
}

void RunCoordinator::AddEdgesOf(Bucket bucket, Grant* grant) const {
  if (state_.edge_import.token == kInitialToken) return;
  const PartitionVersion edges = EdgesVersion(state_.edge_import.token, state_.position.edge_path,
                                              bucket, plan_.num_lhs, plan_.num_rhs);
  if (state_.places.Find(edges) == nullptr) return;
  grant->edges.push_back(edges);
  AddPlaces(edges, &grant->places);
}

void RunCoordinator::CountLostEdges() {
  lost_edges_ = std::ranges::count_if(state_.places.versions(), [&](const auto& entry) {
    mu_.AssertHeld();
    return entry.first.key.entity_type == kEdgesType && !state_.places.IsReadable(entry.first);
  });
  if (lost_edges_ == 0) return;
  Event(LogEvent("edges are lost, the same `weft import --to` as before brings them again",
                 {{"buckets", lost_edges_}}, LogEvent::Level::kError));
}

}  // namespace weft
