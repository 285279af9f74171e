// The bytes of a run's records: messages of proto/weft/v1/run_state.proto.
#pragma once

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/lock_server/run_state.h"

namespace weft {

using RunRecord = std::variant<RunState, GrantReleased, RunFailed>;

std::string EncodeRecord(const RunRecord& record);

// Errors: DataLoss when the bytes are no record, or a record that makes no sense;
// FailedPrecondition when they are of a newer format.
absl::StatusOr<RunRecord> DecodeRecord(absl::string_view bytes);

}  // namespace weft
