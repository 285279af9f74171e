// training_stats.json: PBG's log of a run, one JSON object a line. A line for each trained bucket,
// and after those of a pass one with the average of its evaluations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/lock_server/run_coordinator.h"

namespace weft {

// Appends the lines of a pass, durably. `num_buckets`: of a pass, empty ones too: PBG numbers the
// lines of a whole run by it.
absl::Status AppendPassStats(const std::string& path, const CompletePass& pass,
                             int64_t num_buckets);

// Removes what does not belong to the first `num_passes` passes (a crash came between the lines and
// the checkpoint), repeated lines, and a last line that is incomplete. Other lines stay as they
// are.
absl::Status TrimPassStats(const std::string& path, int64_t num_passes, int64_t num_buckets);

// What the lines of a pass say, of what they have. None when there are none, or no file.
absl::StatusOr<std::vector<BucketStats>> ReadPassStats(const std::string& path, int64_t pass,
                                                       int64_t num_buckets);

}  // namespace weft
