// The subcommands of `weft`. Each one adds itself to the program and, when it is the one that was
// asked for, runs and gives the exit code: 0 done, 1 failed, 2 bad flags or bad configuration.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace weft::cli {

// What a subcommand leaves behind when it is parsed: run it after parsing. Empty: not asked for.
using Action = std::function<int()>;

void AddConfigCommand(CLI::App& app, Action* action);
void AddImportCommand(CLI::App& app, Action* action);
void AddPlanCommand(CLI::App& app, Action* action);
void AddTrainCommand(CLI::App& app, Action* action);
void AddEvalCommand(CLI::App& app, Action* action);
void AddExportCommand(CLI::App& app, Action* action);
void AddNeighborsCommand(CLI::App& app, Action* action);
void AddScoreCommand(CLI::App& app, Action* action);
void AddClusterCommand(CLI::App& app, Action* action);
void AddClusterOperations(CLI::App& group, Action* action);  // of `cluster`
void AddStatusCommand(CLI::App& app, Action* action);
void AddCheckpointCommand(CLI::App& app, Action* action);

// The whole program: what main() calls.
int Main(int argc, char** argv);

// Prints "weft COMMAND: message" to standard error and gives the exit code that fits the status:
// 2 for InvalidArgument or NotFound when `usage` (from flags or the configuration), else 1.
int Fail(std::string_view command, const absl::Status& status, bool usage = false);

}  // namespace weft::cli
