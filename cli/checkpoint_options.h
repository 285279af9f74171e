// The flags by which a command is told which checkpoint to read.
#pragma once

#include "cli/checkpoint_loader.h"

namespace CLI {
class App;
}

namespace weft::cli {

// CHECKPOINT, --entities and --set. `options` must outlive `command`.
void AddCheckpointOptions(CLI::App& command, Checkpoint::Options* options);

// Opens it and prints its warnings to standard error as those of `weft COMMAND`.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& command,
                                          const Checkpoint::Options& options);

}  // namespace weft::cli
