// The flags of commands that read a configuration.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft::cli {

// --set KEY=VALUE, any number of times, under PBG's names of it, too. `about`: with examples.
void AddOverrides(CLI::App& command, std::vector<std::string>* overrides, const std::string& about);

}  // namespace weft::cli
