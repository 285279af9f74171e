// weft config init: a configuration for data that somebody has only just got.
#pragma once

#include "cli/commands.h"

namespace weft::cli {

// Adds `init` to the command `config`.
void AddConfigInit(CLI::App& config, Action* action);

}  // namespace weft::cli
