// weft config check: all problems of a configuration at once, or what it comes to.
#include <CLI/App.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/config_init.h"
#include "cli/config_options.h"
#include "cli/reference_hook.h"
#include "services/common/run_config.h"

namespace weft::cli {
namespace {

struct CheckOptions {
  std::string path;
  std::vector<std::string> overrides;
  bool pbg = false;
};

int Check(const CheckOptions& options) {
  const absl::StatusOr<ConfigResult> result =
      LoadRunConfig(options.path, options.overrides, ProgramConfigOptions());
  if (!result.ok()) return Fail("config check", result.status(), /*usage=*/true);
  for (const std::string& warning : result->warnings) {
    std::cerr << "weft config check: warning: " << warning << "\n";
  }
  std::cout << RunConfigToJson(result->config, options.pbg);
  return 0;
}

void AddCheck(CLI::App& config, Action* action) {
  CLI::App* const command = config.add_subcommand(
      "check", "Tell everything that is wrong with a configuration, or print what it comes to");
  const auto options = std::make_shared<CheckOptions>();
  command->add_option("CONFIG", options->path, "The configuration, JSON")->required();
  AddOverrides(*command, &options->overrides,
               "Override a key: lr=0.1, entities.user.num_partitions=4, edge_paths=a,b");
  command->add_flag("--pbg", options->pbg, "Print only the keys that PyTorch-BigGraph knows");
  command->footer(
      "Example:\n"
      "  weft config check run.json --set lr=0.05 --set entities.user.num_partitions=4\n");
  command->callback([options, action] { *action = [options] { return Check(*options); }; });
}

}  // namespace

void AddConfigCommand(CLI::App& app, Action* action) {
  CLI::App* const config = app.add_subcommand("config", "Make or check a configuration");
  config->require_subcommand(1);
  config->footer(
      "Example:\n"
      "  weft config init triples.tsv -o run.json\n"
      "  weft config check run.json --set lr=0.05\n");
  AddConfigInit(*config, action);
  AddCheck(*config, action);
}

}  // namespace weft::cli
