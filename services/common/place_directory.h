// PlaceDirectory is what a trainer knows of where versions lie and where to store: told by the lock
// server with each grant, read by whoever moves partitions.
//
// What the session itself stores is entered as soon as it is stored, before its release is
// answered: such a version is immutable already, and its next reader may be the trainer itself.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "services/common/cluster_types.h"
#include "services/common/mutex.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"

namespace weft {

class PlaceDirectory {
 public:
  // Where a grant's versions are to be stored.
  struct StorePlan {
    std::vector<ServerInfo> servers;  // the best first; only ones that are registered
    int replicas = 1;
  };

  // --- For the client of the lock server.

  // A list of a lower revision is not taken.
  void SetServers(ServerList servers) ABSL_LOCKS_EXCLUDED(mu_);
  // `places`: of bases and hinted versions; `bases`: what the grant starts from.
  void AddGrant(Token token, const std::vector<VersionInfo>& places, std::vector<StoreId> store_at,
                int replicas, std::vector<PartitionVersion> bases = {}) ABSL_LOCKS_EXCLUDED(mu_);
  // What was stored under `token`, one entry a partition.
  std::vector<VersionInfo> Stored(Token token) const ABSL_LOCKS_EXCLUDED(mu_);
  // The grant was given back, or has ended: nobody stores under its token any more.
  void DropGrant(Token token) ABSL_LOCKS_EXCLUDED(mu_);
  // The session has ended: everything but the servers is forgotten.
  void Clear() ABSL_LOCKS_EXCLUDED(mu_);

  // --- For the client of the partition servers.

  // Where `version` lies. Errors: NotFound: the lock server named no place, and the trainer has
  // not stored it. Aborted: the session has ended, or had no grant yet.
  absl::StatusOr<VersionInfo> Find(const PartitionVersion& version) const ABSL_LOCKS_EXCLUDED(mu_);
  // Errors: Aborted, as Find.
  absl::Status CheckSession() const ABSL_LOCKS_EXCLUDED(mu_);
  // The live grant that starts from `version`; none for what is only hinted.
  std::optional<Token> GrantFrom(const PartitionVersion& version) const ABSL_LOCKS_EXCLUDED(mu_);
  // Places that the lock server named after one was found unreadable.
  void SetPlaces(const PartitionVersion& version, uint32_t shard, std::vector<Place> places)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Errors: Aborted: the grant has ended. Unavailable: no partition server is registered.
  absl::StatusOr<StorePlan> PlanFor(Token token) const ABSL_LOCKS_EXCLUDED(mu_);
  // The version is stored at these places. Replaces what was known of it.
  void SetStored(VersionInfo version) ABSL_LOCKS_EXCLUDED(mu_);

  // The partition server with this store, as it is registered now.
  std::optional<ServerInfo> Server(StoreId store) const ABSL_LOCKS_EXCLUDED(mu_);
  ServerList servers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Versions are forgotten with the grant after the next: a grant, what it hints, and the one that
  // is being stored.
  static constexpr size_t kRememberedGrants = 4;

  struct GrantEntry {
    std::vector<PartitionVersion> bases;
    std::vector<StoreId> store_at;
    int replicas = 1;
    bool live = true;
    std::map<PartitionKey, VersionInfo> stored;
    std::map<PartitionVersion, VersionInfo> places;  // of bases and hints
  };

  const VersionInfo* FindPlaces(const PartitionVersion& version) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  VersionInfo* FindMutablePlaces(const PartitionVersion& version)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckGrants() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<Token, GrantEntry> grants_ ABSL_GUARDED_BY(mu_);
  ServerList servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
