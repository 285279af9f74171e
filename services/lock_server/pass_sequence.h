// The sequence of passes of a run: epochs, in each the edge paths, in each the edge chunks.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/lock_server/lock_client.h"

namespace weft {

// The pass after `position`.
PassPosition NextPass(const PassPosition& position, int num_edge_paths);

// PBG counts passes only; where its version number stands in the sequence.
PassPosition PositionOfVersion(int64_t version, int num_edge_paths, int num_edge_chunks);

// Where a run stands after its edge paths or its number of edge chunks were changed: the same share
// of the same epoch is done. `begun`: some bucket of the pass at `position` is done already.
// Errors: FailedPrecondition when there is no such place; the message says what would be possible.
absl::StatusOr<PassPosition> MapPosition(const PassPosition& position, bool begun,
                                         const std::vector<std::string>& old_paths,
                                         const std::vector<std::string>& new_paths,
                                         int num_edge_chunks);

}  // namespace weft
