// Where a command writes its results for machines: the flag --json.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace weft::cli {

// Adds `--json FILE`, which sets *path. What cannot be written to is refused with the flags: a run
// of hours does not end with it.
void AddReportOption(CLI::App& command, std::string* path, const std::string& description);

// Why `path` cannot be written to; empty when it can. Nothing is created.
std::string ReportPathProblem(const std::string& path);

// Writes `text` to `path`. A regular file is replaced as a whole, and stays a link if it is one;
// devices and pipes are written into.
// Errors: of WriteFileAtomically.
absl::Status WriteReport(const std::string& path, std::string_view text);

}  // namespace weft::cli
