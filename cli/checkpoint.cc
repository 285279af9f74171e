// weft checkpoint: the versions of a cluster's run.
#include <CLI/App.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/checkpoint_pull.h"
#include "cli/commands.h"
#include "cli/run_status.h"
#include "services/common/status_macros.h"
#include "services/lock_server/grpc_operator_client.h"

namespace weft::cli {
namespace {

struct Flags {
  std::string address;
  int64_t version = 0;
  std::string folder;
  bool insecure = false;
  bool undo = false;
};

absl::StatusOr<std::unique_ptr<GrpcOperatorClient>> Connect(const Flags& flags) {
  GrpcOperatorClient::Options options;
  options.address = flags.address;
  options.security.allow_plain_text = flags.insecure;
  return GrpcOperatorClient::Create(std::move(options));
}

absl::Status List(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_ASSIGN_OR_RETURN(const v1::GetRunStateResponse state, lock_server->GetRunState(false));
  std::cout << FormatManifests(state);
  return absl::OkStatus();
}

absl::Status Pull(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  PullOptions options;
  options.folder = flags.folder;
  options.version = flags.version;
  options.security.allow_plain_text = flags.insecure;
  WEFT_ASSIGN_OR_RETURN(const PulledCheckpoint pulled, PullCheckpoint(lock_server.get(), options));
  std::cout << "version " << pulled.version << " is in " << pulled.folder << " (" << pulled.files
            << " files, " << pulled.epochs << " epochs)\n";
  return absl::OkStatus();
}

absl::Status Preserve(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_RETURN_IF_ERROR(lock_server->Preserve(flags.version, !flags.undo));
  std::cout << "version " << flags.version
            << (flags.undo ? " is no longer preserved\n" : " is preserved\n");
  return absl::OkStatus();
}

absl::Status Rollback(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  WEFT_ASSIGN_OR_RETURN(const uint64_t generation,
                        lock_server->Rollback(NewRequestId(), flags.version));
  std::cout << "the run goes back to "
            << (flags.version == 0 ? std::string("its beginning")
                                   : absl::StrCat("version ", flags.version))
            << ", generation " << generation << "\n";
  return absl::OkStatus();
}

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& about,
                     const std::shared_ptr<Flags>& flags, Action* action,
                     absl::Status (*run)(const Flags&)) {
  CLI::App* const command = parent->add_subcommand(name, about);
  command->add_option("ADDRESS", flags->address, "The lock server's host:port")->required();
  command->add_flag("--insecure", flags->insecure, "Plain text beyond this machine");
  command->callback([flags, action, run, name] {
    *action = [flags, run, name] {
      const absl::Status status = run(*flags);
      return status.ok() ? 0 : Fail(absl::StrCat("checkpoint ", name), status);
    };
  });
  return command;
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, Action* action) {
  CLI::App* const group =
      app.add_subcommand("checkpoint", "List, fetch, keep or go back to versions of a cluster");
  group->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  AddCommand(group, "list", "The versions that there are", flags, action, List)
      ->footer("Example:\n  weft checkpoint list 127.0.0.1:7000\n");
  CLI::App* const pull = AddCommand(group, "pull", "Write a version as PBG's files into a folder",
                                    flags, action, Pull);
  pull->add_option("--version", flags->version, "Which one (default: the newest)")
      ->check(CLI::PositiveNumber)
      ->default_str("");
  pull->add_option("-o,--output", flags->folder, "The folder (default: the run's checkpoint_path)")
      ->type_name("DIR");
  pull->footer("Example:\n  weft checkpoint pull 127.0.0.1:7000 -o model\n");
  CLI::App* const preserve =
      AddCommand(group, "preserve", "Keep a version for ever", flags, action, Preserve);
  preserve->add_option("VERSION", flags->version, "Which one")
      ->required()
      ->check(CLI::PositiveNumber);
  preserve->add_flag("--undo", flags->undo, "No longer");
  preserve->footer("Example:\n  weft checkpoint preserve 127.0.0.1:7000 12\n");
  CLI::App* const rollback = AddCommand(
      group, "rollback", "Go back to a version; later ones that are not preserved are lost", flags,
      action, Rollback);
  rollback->add_option("VERSION", flags->version, "Which one; 0: the beginning")
      ->required()
      ->check(CLI::NonNegativeNumber);
  rollback->footer("Example:\n  weft checkpoint rollback 127.0.0.1:7000 12\n");
  group->footer("Example:\n  weft checkpoint list 127.0.0.1:7000\n");
}

}  // namespace weft::cli
