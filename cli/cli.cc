#include <fcntl.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cli/commands.h"
#include "services/common/nearest_key.h"

namespace weft::cli {
namespace {

constexpr char kAbout[] =
    "Weft trains embeddings of large graphs, with PyTorch-BigGraph's data, configuration and "
    "files.";

// The commands' own examples, one under the other.
std::string AllExamples(CLI::App& app) {
  std::string text = "Examples:\n";
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    std::string footer = command->get_footer();
    const std::string title = "Example:\n";
    if (footer.rfind(title, 0) == 0) footer.erase(0, title.size());
    if (!footer.empty()) absl::StrAppend(&text, footer, footer.back() == '\n' ? "" : "\n");
  }
  return text;
}

// What to say about a word that stands where a command of `app` belongs and is none; empty when all
// is well. `words` are the arguments that follow `app`'s own name.
std::string UnknownCommand(CLI::App& app, absl::Span<char* const> words) {
  const std::vector<CLI::App*> commands = app.get_subcommands([](CLI::App*) { return true; });
  if (commands.empty() || words.empty()) return "";
  const std::string word = words.front();
  if (word.empty() || word.front() == '-') return "";
  std::vector<std::string> names;
  for (CLI::App* command : commands) {
    if (command->check_name(word)) return UnknownCommand(*command, words.subspan(1));
    names.push_back(command->get_name());
  }
  return absl::StrCat("unknown command \"", word, "\"", Suggestion(word, names));
}

int Run(int argc, char** argv) {
  CLI::App app(kAbout, "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.option_defaults()->always_capture_default();
  Action action;
  AddConfigCommand(app, &action);
  AddImportCommand(app, &action);
  AddPlanCommand(app, &action);
  AddTrainCommand(app, &action);
  AddEvalCommand(app, &action);
  AddExportCommand(app, &action);
  AddNeighborsCommand(app, &action);
  AddScoreCommand(app, &action);
  AddClusterCommand(app, &action);
  AddStatusCommand(app, &action);
  AddCheckpointCommand(app, &action);
  app.footer(AllExamples(app));

  const absl::Span<char* const> words(argv + std::min(argc, 1), std::max(argc - 1, 0));
  if (const std::string unknown = UnknownCommand(app, words); !unknown.empty()) {
    std::cerr << "weft: " << unknown << "\nweft --help lists the commands.\n";
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
    return 0;
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = &app;
    std::string name = "weft";
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().front();
      absl::StrAppend(&name, " ", command->get_name());
    }
    std::cerr << name << ": " << error.what() << "\n" << name << " --help explains.\n";
    return 2;
  }
  if (!action) {
    std::cerr << app.help();
    return 2;
  }
  return action();
}

// A data file that was given the number of a closed standard stream would get what is printed.
// Standard input becomes one that cannot be read, not an empty one.
void OpenClosedStreams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_WRONLY);  // the lowest free number
  }
}

int RunGuarded(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of a library, or out of memory
    std::cerr << "weft: " << error.what() << "\n";
    return 1;
  }
}

}  // namespace

int Main(int argc, char** argv) {
  OpenClosedStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit of its size is an error as any other
  const int code = RunGuarded(argc, argv);
  errno = 0;
  if (!std::cout.flush() && code == 0) {
    std::cerr << "weft: cannot write to standard output"
              << (errno != 0 ? absl::StrCat(": ", std::strerror(errno)) : "") << "\n";
    return 1;
  }
  return code;
}

int Fail(std::string_view command, const absl::Status& status, bool usage) {
  const std::string message(status.message());
  std::cerr << "weft " << command << ": " << message
            << (!message.empty() && message.back() == '\n' ? "" : "\n");
  return usage && (absl::IsInvalidArgument(status) || absl::IsNotFound(status)) ? 2 : 1;
}

}  // namespace weft::cli
