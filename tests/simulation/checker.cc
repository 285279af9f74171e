#include "tests/simulation/checker.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/param_server/param_snapshot.h"
#include "services/partition_server/partition_shards.h"

namespace weft::simulation {
namespace {

std::string Name(Bucket b) { return absl::StrCat("(", b.lhs, ", ", b.rhs, ")"); }

bool IsExactly(const EmbeddingPartition& expected, const ShardInfo& shard,
               const std::string& bytes) {
  size_t offset = 0;
  for (const absl::string_view piece : PiecesOf(expected, shard, 0, shard.size_bytes)) {
    if (bytes.compare(offset, piece.size(), piece.data(), piece.size()) != 0) return false;
    offset += piece.size();
  }
  return offset == bytes.size();
}

}  // namespace

std::vector<Bucket> Checker::Done(const std::vector<DoneBucket>& done) const {
  std::vector<Bucket> buckets;
  for (const DoneBucket& bucket : done) buckets.push_back(bucket.stats.bucket);
  return buckets;
}

void Checker::OnState(const RunState& state) {
  const RunState before = std::exchange(state_, state);
  if (before.run_id.empty()) return;
  if (state.generation != before.generation) {
    ++rewinds_;
    if (state.generation != before.generation + 1) world_->Fail("a generation was left out");
  } else if (state.position.pass != before.position.pass) {
    if (state.position.pass != before.position.pass + 1) world_->Fail("a pass was left out");
    // The pass that is over: every edge of the graph once.
    ++passes_;
    std::set<Bucket> done;
    int64_t edges = 0;
    for (const DoneBucket& bucket : before.done) {
      if (!done.insert(bucket.stats.bucket).second) {
        world_->Fail(absl::StrCat("bucket ", Name(bucket.stats.bucket), " was counted twice"));
      }
      edges += bucket.stats.trained_edges + bucket.stats.held_out_edges;
    }
    if (edges != graph_->num_edges()) {
      world_->Fail(absl::StrCat("pass ", before.position.pass, " has ", edges, " edges of ",
                                graph_->num_edges()));
    }
    edges_ += edges;
  } else if (state.term == before.term && state.done.size() < before.done.size()) {
    world_->Fail("a bucket is not done any more");
  }
}

void Checker::OnChange(const RunChange& change) {
  if (const auto* made = std::get_if<GrantMade>(&change)) CheckGrant(*made);
  if (const auto* lost = std::get_if<ServerLost>(&change)) {
    // Lost is what an operator, or a silence of store_lost_after, says is lost.
    for (const auto& [version, shards] : state_.places.versions()) {
      for (const ShardInfo& shard : shards) {
        for (const Place& place : shard.places) {
          if (place.store_id == lost->store) hurt_.insert(version);
        }
      }
    }
  }
  ApplyChange(change, &state_);
  if (const auto* released = std::get_if<GrantReleased>(&change)) CheckRelease(*released);
  if (const auto* committed = std::get_if<ManifestCommitted>(&change)) {
    const Manifest* manifest = state_.manifests.Find(committed->token);
    if (manifest != nullptr) CheckManifest(*manifest);
  }
}

void Checker::CheckGrant(const GrantMade& made) {
  if (!tokens_.insert(made.token).second) {
    world_->Fail(absl::StrCat("token ", made.token, " was granted twice"));
  }
  for (const auto& [token, grant] : state_.grants) {
    if (grant.session == made.grant.session) continue;
    for (const GrantRecord::Base& base : grant.bases) {
      for (const GrantRecord::Base& mine : made.grant.bases) {
        if (base.key == mine.key) {
          world_->Fail(absl::StrCat("two sessions have partition ", base.key.partition));
        }
      }
    }
  }
}

void Checker::CheckRelease(const GrantReleased& released) {
  std::set<Bucket> done;
  for (const DoneBucket& bucket : state_.done) {
    if (!done.insert(bucket.stats.bucket).second) {
      world_->Fail(absl::StrCat("bucket ", Name(bucket.stats.bucket), " was done twice"));
    }
  }
  for (const PartitionKey& key : released.stored) {
    CheckContent({key, released.token}, state_.position.pass, Done(state_.done));
  }
}

void Checker::CheckManifest(const Manifest& manifest) {
  for (const PartitionVersion& version : manifest.versions) {
    // Once it is committed, disks may be lost.
    if (!state_.places.IsDurable(version) && !hurt_.contains(version)) {
      world_->Fail(
          absl::StrCat("a committed manifest names what is not durable: ", ToString(version)));
    }
    if (version.key.entity_type < 0) continue;
    CheckContent(version, manifest.position.pass, Done(manifest.done));
  }
  CheckSnapshots(manifest);
}

const BlobDisk::Blob* Checker::Find(const Place& place, const ShardName& name) const {
  for (const auto& [address, process] : addresses_->partitions) {
    if (process->store_id() != place.store_id) continue;
    const BlobDisk::Blob* const blob = process->At(place, name);
    return blob == nullptr || blob->damaged ? nullptr : blob;
  }
  return nullptr;
}

bool Checker::IsHurt(const Place& place, const ShardName& name) const {
  for (const auto& [address, process] : addresses_->partitions) {
    if (process->HasLost(place.store_id)) return true;
    if (process->store_id() != place.store_id) continue;
    const BlobDisk::Blob* const blob = process->At(place, name);
    return blob != nullptr && blob->damaged;
  }
  return false;
}

bool Checker::Retired(StoreId store) const {
  return std::ranges::any_of(state_.servers, [&](const ServerRecord& server) {
    return server.info.store_id == store && server.retired;
  });
}

bool Checker::FailureIsRight() const {
  if (!absl::StrContains(state_.failure->reason, "no manifest is whole")) return false;
  return std::ranges::all_of(state_.manifests.manifests(), [&](const auto& entry) {
    const Manifest& manifest = entry.second;
    // What is not committed yet, or of a life that was given up, is not gone back to.
    const bool candidate =
        manifest.state != Manifest::State::kPending &&
        (manifest.token <= state_.origin || manifest.generation == state_.generation);
    return !candidate ||
           std::ranges::any_of(manifest.versions, [&](const PartitionVersion& version) {
             return hurt_.contains(version);
           });
  });
}

std::vector<int64_t> Checker::DoneEdges(int64_t passes, const std::vector<Bucket>& done) const {
  std::vector<int64_t> edges = graph_->BucketEdges();
  for (int64_t& bucket : edges) bucket *= passes;
  for (const Bucket& b : done) {
    edges[graph_->Index(b)] += static_cast<int64_t>(graph_->edges(b).size());
  }
  return edges;
}

void Checker::CheckSnapshots(const Manifest& manifest) {
  std::vector<double> counts(graph_->buckets.size());
  bool any = false;
  for (const PartitionVersion& version : manifest.versions) {
    if (version.key.entity_type != kSnapshotType) continue;
    any = true;
    const PlaceTable::Shards* shards = state_.places.Find(version);
    const BlobDisk::Blob* blob = nullptr;
    for (const Place& place : shards != nullptr ? shards->at(0).places : std::vector<Place>()) {
      const BlobDisk::Blob* const there = Find(place, {version, 0});
      if (there != nullptr) {
        blob = there;
      } else if (place.incarnation == 0 && !IsHurt(place, {version, 0})) {
        return world_->Fail("a durable snapshot is lost");
      }
    }
    if (blob == nullptr && hurt_.contains(version)) return;
    if (blob == nullptr) return world_->Fail("a committed snapshot is lost");
    std::string bytes;
    for (const std::string& segment : blob->segments) bytes += segment;
    const absl::StatusOr<ParamSnapshot> snapshot = ParamSnapshot::Decode(bytes);
    if (!snapshot.ok()) return world_->Fail("a committed snapshot is none");
    int64_t at = 0;
    for (const RowRange& range : snapshot->ranges) {
      for (int64_t row = range.first; row < range.first + range.count; ++row, ++at) {
        if (range.tensor != 0) continue;
        counts[static_cast<size_t>(row)] += static_cast<double>(snapshot->values.data()[at]);
      }
    }
  }
  if (!any || pushes_were_lost) return;
  const std::vector<int64_t> done = DoneEdges(manifest.position.pass, Done(manifest.done));
  for (size_t b = 0; b < counts.size(); ++b) {
    if (counts[b] < static_cast<double>(done[b])) {
      world_->Fail(absl::StrCat("a snapshot has ", counts[b], " edges of bucket ", b, ", and ",
                                done[b], " are done"));
    }
  }
}

void Checker::CheckCounts(const std::vector<double>& counts, const std::vector<int64_t>& trained) {
  const std::vector<int64_t> done = DoneEdges(state_.position.pass, {});
  for (size_t b = 0; b < counts.size(); ++b) {
    const bool lacks = counts[b] < static_cast<double>(done[b]) && !pushes_were_lost;
    if (lacks || counts[b] > static_cast<double>(trained[b])) {
      world_->Fail(absl::StrCat("the parameters have ", counts[b], " edges of bucket ", b, "; ",
                                done[b], " are done, ", trained[b], " were trained"));
    }
  }
}

void Checker::CheckContent(const PartitionVersion& version, int64_t passes,
                           const std::vector<Bucket>& done) {
  const PlaceTable::Shards* shards = state_.places.Find(version);
  if (shards == nullptr) return world_->Fail(absl::StrCat(ToString(version), " lies nowhere"));
  const EmbeddingPartition expected = graph_->Expected(version.key.partition, passes, done);
  for (const ShardInfo& shard : *shards) {
    const ShardName name = {version, shard.shard};
    for (const Place& place : shard.places) {
      const BlobDisk::Blob* const blob = Find(place, name);
      if (blob == nullptr) {
        if (place.incarnation != 0) continue;  // its process has ended, soon to be known
        if (IsHurt(place, name)) continue;
        return world_->Fail(absl::StrCat(ToString(name), " is lost"));
      }
      std::string bytes;
      for (const std::string& segment : blob->segments) bytes += segment;
      if (!IsExactly(expected, shard, bytes)) {
        return world_->Fail(absl::StrCat(ToString(name), " is not pass ", passes, " and ",
                                         done.size(), " buckets, each once"));
      }
    }
  }
}

void Checker::CheckEnd(int64_t passes) {
  if (state_.position.pass != passes) {
    world_->Fail(absl::StrCat("done after ", state_.position.pass, " of ", passes, " passes"));
  }
  const Manifest* last = state_.manifests.FindVersion(passes);
  if (last == nullptr || last->state != Manifest::State::kCommitted) {
    return world_->Fail("the last pass is in no committed manifest");
  }
  CheckManifest(*last);
  for (const PartitionKey& key : state_.versions.keys()) {
    const PartitionVersion current = {key, state_.versions.current(key)};
    if (current.token == kInitialToken) {
      if (graph_->Expected(key.partition, 1, {}).adagrad_sums.span()[0] > 0) {
        world_->Fail("a partition was never trained");
      }
      continue;
    }
    CheckContent(current, passes, {});
  }
}

}  // namespace weft::simulation
