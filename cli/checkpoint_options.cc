#include "cli/checkpoint_options.h"

#include <CLI/App.hpp>
#include <iostream>

#include "cli/config_options.h"

namespace weft::cli {

void AddCheckpointOptions(CLI::App& command, Checkpoint::Options* options) {
  command
      .add_option("CHECKPOINT", options->path,
                  "Checkpoint folder, or the run configuration that names it")
      ->required();
  command
      .add_option("--entities", options->entity_path,
                  "Folder with the names of entities and relations (default: entity_path)")
      ->type_name("DIR");
  AddOverrides(command, &options->overrides, "Override a key of the configuration: lr=0.1");
}

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& command,
                                          const Checkpoint::Options& options) {
  absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(options);
  if (checkpoint.ok()) {
    for (const std::string& warning : checkpoint->warnings()) {
      std::cerr << "weft " << command << ": warning: " << warning << "\n";
    }
  }
  return checkpoint;
}

}  // namespace weft::cli
