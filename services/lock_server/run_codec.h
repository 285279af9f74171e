// The bytes of a run's records: messages of proto/weft/v1/run_state.proto.
#pragma once

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/lock_server/run_state.h"

namespace weft {

// A state, or a change to it.
using RunRecord = std::variant<RunState, RunChange>;

std::string EncodeState(const RunState& state);
std::string EncodeChange(const RunChange& change);

// Errors: DataLoss when the bytes are no record, or a record that makes no sense;
// FailedPrecondition when they are of a newer format.
absl::StatusOr<RunRecord> DecodeRecord(absl::string_view bytes);

}  // namespace weft
