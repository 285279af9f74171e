#include "cli/config_options.h"

#include <CLI/App.hpp>

namespace weft::cli {

void AddOverrides(CLI::App& command, std::vector<std::string>* overrides,
                  const std::string& about) {
  command.add_option("-p,--set,--param", *overrides, about)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
}

}  // namespace weft::cli
