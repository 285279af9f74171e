// weft cluster pause|resume|forget-store: what an operator does with a cluster that is up.
#include <CLI/App.hpp>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/operator_options.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

struct Flags : OperatorFlags {
  std::string store;
};

absl::Status Pause(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_RETURN_IF_ERROR(lock_server->Pause(true));
  std::cout << "paused: trainers finish what they have, and get nothing more\n";
  return absl::OkStatus();
}

absl::Status Resume(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_RETURN_IF_ERROR(lock_server->Pause(false));
  std::cout << "goes on\n";
  return absl::OkStatus();
}

absl::Status ForgetStore(const Flags& flags) {
  uint64_t store = 0;
  if (!absl::SimpleHexAtoi(flags.store, &store) || store == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", flags.store, "\" is no store id; `weft status ", flags.address, " --json` has them"));
  }
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_RETURN_IF_ERROR(lock_server->ForgetStore(store));
  std::cout << "store " << flags.store << " is retired: what lay there only is lost\n";
  return absl::OkStatus();
}

CLI::App* AddCommand(CLI::App* group, const std::string& name, const std::string& about,
                     const std::shared_ptr<Flags>& flags, Action* action,
                     absl::Status (*run)(const Flags&)) {
  CLI::App* const command = group->add_subcommand(name, about);
  AddOperatorFlags(*command, flags.get());
  command->callback([flags, action, run, name] {
    *action = [flags, run, name] {
      const absl::Status status = run(*flags);
      return status.ok() ? 0 : Fail(absl::StrCat("cluster ", name), status, /*usage=*/false);
    };
  });
  return command;
}

}  // namespace

void AddClusterOperations(CLI::App& group, Action* action) {
  const auto flags = std::make_shared<Flags>();
  AddCommand(&group, "pause", "Grant nothing more; what is granted is finished", flags, action,
             Pause)
      ->footer("Example:\n  weft cluster pause 127.0.0.1:7000\n");
  AddCommand(&group, "resume", "Go on after a pause", flags, action, Resume)
      ->footer("Example:\n  weft cluster resume 127.0.0.1:7000\n");
  CLI::App* const forget = AddCommand(&group, "forget-store",
                                      "A partition server that will never come back: what lay "
                                      "there only is lost, its id is refused",
                                      flags, action, ForgetStore);
  forget->add_option("STORE", flags->store, "Its store id, as `weft status --json` shows it")
      ->required();
  forget->footer("Example:\n  weft cluster forget-store 127.0.0.1:7000 1f3a5c7e9b2d4f60\n");
}

}  // namespace weft::cli
