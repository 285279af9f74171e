// ManifestCatalog holds a run's manifests: what the run was at some instants, to which it can go
// back. A manifest is pending until all that it names is durable, then committed; one that can no
// longer be read is broken and never chosen.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/cluster_types.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/lock_server/early_stopping.h"

namespace weft {

struct DoneBucket {
  Token token = kInitialToken;  // of the grant that trained it
  BucketStats stats;
};

struct Manifest {
  enum class State : uint8_t { kPending = 1, kCommitted = 2, kBroken = 3 };

  Token token = kInitialToken;  // its name; that of the beginning is 0
  Generation generation = 0;
  int64_t version = 0;  // the checkpoint version; 0: the beginning, or made within a pass
  State state = State::kPending;
  bool preserved = false;
  PassPosition position;               // of the pass that goes on from it
  std::vector<DoneBucket> done;        // what of that pass is done already
  std::vector<DoneBucket> ended_pass;  // the pass that it ends, for the statistics
  EarlyStoppingState early_stopping;
  // Every partition that is not initial, and the snapshots of the parameter servers.
  std::vector<PartitionVersion> versions;
  std::map<std::string, double> metrics;  // what evaluations reported of it
};

class ManifestCatalog {
 public:
  const Manifest* Find(Token token) const;
  Manifest* Find(Token token);
  // The newest committed one of that version; 0: the beginning, initial or pushed.
  const Manifest* FindVersion(int64_t version) const;
  // The newest committed one of those that `may` be; nullptr: none.
  const Manifest* NewestCommitted(const std::function<bool(const Manifest&)>& may) const;
  // Some manifest, broken ones apart, names it.
  bool Holds(const PartitionVersion& version) const { return held_.contains(version); }

  void Put(Manifest manifest);
  // The versions that no manifest names any more.
  std::vector<PartitionVersion> Remove(Token token);
  std::vector<PartitionVersion> MarkBroken(Token token);

  const std::map<Token, Manifest>& manifests() const { return manifests_; }  // oldest first
  std::vector<PartitionVersion> HeldVersions() const;

 private:
  std::vector<PartitionVersion> LetGo(const Manifest& manifest);

  std::map<Token, Manifest> manifests_;
  absl::flat_hash_map<PartitionVersion, int> held_;  // by how many manifests
};

}  // namespace weft
