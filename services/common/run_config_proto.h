// The run configuration as a message (proto/weft/v1/run_config.proto) and back.
#pragma once

#include "services/common/config_problems.h"
#include "services/common/run_config.h"

namespace weft::v1 {
class RunConfig;
}

namespace weft {

// Absent fields give the defaults of RunConfig. Adds relations that name an unknown entity type to
// `problems`. Names that the reader has not checked give the default.
RunConfig RunConfigFromProto(const v1::RunConfig& message, ConfigProblems* problems);

// Every field is set but those that are null and those without effect.
void RunConfigToProto(const RunConfig& config, v1::RunConfig* message);

}  // namespace weft
