// Where a run on one machine starts: anew, from its own state, or from a checkpoint that came from
// elsewhere (PBG, a cluster, a copied folder). Everything is checked here; nothing is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/checkpoint/checkpoint_dir.h"
#include "services/common/run_config.h"
#include "services/lock_server/run_coordinator.h"
#include "services/lock_server/run_state.h"
#include "services/trainer/local/local_data.h"

namespace weft {

struct LocalStart {
  RunState state;
  RunPlan plan;
  bool is_new = false;           // nothing is committed, nothing is released
  bool adopts = false;           // state.versions are to be made from the files of a version
  bool repairs_pointer = false;  // the version file is missing or damaged
  // The version pointer was switched to it before the run's state could say so.
  std::optional<int64_t> committed_meanwhile;
  std::vector<std::string> notes;  // for people: what is different from what one may expect
};

// `stored`: what .weft holds, if anything.
// Errors: FailedPrecondition when the configuration, the data or the folder does not fit the run
// that is there (the message has both values); DataLoss, NotFound for files that are damaged or
// missing.
absl::StatusOr<LocalStart> ResolveStart(const RunConfig& config, const LocalData& data,
                                        const CheckpointDir& dir,
                                        const std::optional<RunState>& stored);

RunShape MakeRunShape(const RunConfig& config, const LocalData& data);
RunPlan MakeRunPlan(const RunConfig& config, const LocalData& data);

}  // namespace weft
