// RunState is everything durable about a run: what it trains, how far it has come, which version of
// each partition is current. A RunChange is one durable step from a state to the next.
//
// The state as of the last acknowledged change, and nothing else, is what a restart sees.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "services/common/run_stats.h"
#include "services/common/types.h"
#include "services/lock_server/early_stopping.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/run_shape.h"
#include "services/lock_server/version_table.h"

namespace weft {

// The input directories of edges, in the order in which an epoch visits them.
struct EdgePath {
  std::string path;
  uint64_t digest = 0;  // of the edges per bucket
  bool operator==(const EdgePath&) const = default;
};

struct DoneBucket {
  Token token = kInitialToken;  // of the grant that trained it
  BucketStats stats;
};

struct RunState {
  std::string run_id;  // 32 hexadecimal digits, random
  uint64_t seed = 0;
  uint64_t term = 0;  // +1 at each start
  RunShape shape;
  std::vector<EdgePath> edge_paths;
  // The pass under way, or the next one. `position.pass` passes are committed, which is the
  // committed checkpoint version.
  PassPosition position;
  std::vector<DoneBucket> done;  // of this pass, in the order of their releases
  VersionTable versions;
  EarlyStoppingState early_stopping;
  // Versions whose files nobody needs any more; they may be there still.
  std::vector<int64_t> obsolete_versions;
  std::optional<TrainingFailure> failure;
};

// A grant was released: its versions are current, its buckets done.
struct GrantReleased {
  Token token = kInitialToken;
  std::vector<PartitionKey> stored;
  std::vector<BucketStats> buckets;
};

// Training cannot go on.
struct RunFailed {
  TrainingFailure failure;
};

using RunChange = std::variant<GrantReleased, RunFailed>;

void ApplyChange(const RunChange& change, RunState* state);

}  // namespace weft
