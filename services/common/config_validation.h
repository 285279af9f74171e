// What must hold between the keys of a run configuration, beyond the type and range of each.
#pragma once

#include <string>
#include <vector>

#include "services/common/config_problems.h"
#include "services/common/run_config.h"

namespace weft {

// Adds every problem to `problems`; what follows from a key that is already there is not told.
void ValidateRunConfig(const RunConfig& config, ConfigProblems* problems);

// What is allowed but most likely not meant.
std::vector<std::string> DoubtsAbout(const RunConfig& config);

}  // namespace weft
