// What callers of RunCoordinator say and see, beside what a trainer does (lock_client.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/common/clock.h"
#include "services/common/store_sync.h"
#include "services/common/types.h"
#include "services/lock_server/early_stopping.h"
#include "services/lock_server/lock_client.h"
#include "services/lock_server/manifest_catalog.h"
#include "services/lock_server/run_state.h"

namespace weft {

struct Registration {
  Incarnation incarnation = 0;
  std::string name;
  uint32_t protocol_version = kProtocolVersion;
  uint32_t algorithm_version = kAlgorithmVersion;
  std::vector<EdgePath> data_sets;  // empty: not looked at yet
};

// A checkpoint that has been brought from outside.
struct PushedCheckpoint {
  std::string request_id;
  Token token = kInitialToken;         // of its versions
  int64_t version = 0;                 // 0: only a beginning; partitions may be missing
  PassPosition position;               // of the pass that goes on from it
  std::vector<DoneBucket> ended_pass;  // may be empty
};

// A complete pass, whose checkpoint is to be written.
struct CompletePass {
  int64_t version = 0;    // of the checkpoint: the number of passes that are complete
  PassPosition position;  // of this pass
  bool ends_epoch = false;
  std::vector<DoneBucket> buckets;         // in the order of their releases; not the empty ones
  std::vector<PartitionVersion> versions;  // every partition; initial ones too
};

struct RunProgress {
  PassPosition position;
  int num_epochs = 0;
  int64_t buckets = 0;
  int64_t buckets_done = 0;
  int64_t edges = 0;  // of this pass
  int64_t edges_done = 0;
  int64_t epoch_edges = 0;  // of all passes of an epoch
  bool done = false;
  bool stopped_early = false;
  std::optional<TrainingFailure> failure;
  EarlyStoppingState early_stopping;
};

enum class BucketStatus : uint8_t { kFree = 1, kGranted = 2, kDone = 3 };

struct TrainerView {
  SessionId session = 0;
  std::string name;
  SteadyTime::duration lease_left{};
  uint64_t progress = 0;
  std::vector<Bucket> buckets;
};

struct ManifestView {
  Token token = kInitialToken;
  Generation generation = 0;
  int64_t version = 0;
  PassPosition position;
  Manifest::State state = Manifest::State::kPending;
  bool preserved = false;
  bool best = false;
  int pins = 0;
  std::map<std::string, double> metrics;
};

struct RunView {
  RunPhase phase = RunPhase::kPreparing;
  std::string reason;  // of the phase
  RunProgress progress;
  std::vector<TrainerView> trainers;  // by name
  ServerList servers;
  std::vector<StoreId> silent_servers;
  std::vector<ManifestView> manifests;  // oldest first
  int num_lhs = 0;
  int num_rhs = 0;
  std::vector<BucketStatus> buckets;       // [lhs, rhs]
  std::vector<std::string> missing_edges;  // edge paths for whose edges the run waits
  std::string missing_checkpoint;          // init_path, while the run waits for it to be pushed
};

struct CheckpointView {
  ManifestView manifest;
  std::vector<VersionInfo> partitions;  // every one; initial ones without shards
  std::vector<VersionInfo> snapshots;   // by parameter server
  std::vector<DoneBucket> buckets;      // of the pass that it ended
};

}  // namespace weft
