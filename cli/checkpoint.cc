// weft checkpoint: the versions of a cluster's run.
#include <CLI/App.hpp>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/checkpoint_pull.h"
#include "cli/checkpoint_push.h"
#include "cli/commands.h"
#include "cli/operator_options.h"
#include "cli/progress.h"
#include "cli/run_status.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

struct Flags : OperatorFlags {
  int64_t version = 0;
  std::string folder;
  bool undo = false;
  bool beginning = false;
};

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
  options.security = lock_server.security;
  WEFT_ASSIGN_OR_RETURN(const PulledCheckpoint pulled, PullCheckpoint(lock_server.get(), options));
  std::cout << "version " << pulled.version << " is in " << pulled.folder << " (" << pulled.files
            << " files, " << pulled.epochs << " epochs)\n";
  return absl::OkStatus();
}

absl::Status Push(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  CancelFlag never;
  PushOptions options;
  options.folder = flags.folder;
  options.beginning = flags.beginning;
  options.security = lock_server.security;
  options.on_note = [](const std::string& note) {
    std::cerr << "weft checkpoint push: note: " << note << std::endl;
  };
  WEFT_ASSIGN_OR_RETURN(v1::GetRunStateResponse state, lock_server->GetRunState(false));
  // A run that waits for its init_path begins with it.
  options.beginning = options.beginning || !state.missing_checkpoint().empty();
  std::optional<ProgressReporter> progress;
  options.on_progress = [&](int64_t done, int64_t all) {
    if (!progress.has_value()) {
      ProgressReporter::Options bar;
      bar.title = "push";
      bar.unit = "partitions";
      bar.total = all;
      progress.emplace(bar);
    }
    progress->SetDone(done);
  };
  WEFT_ASSIGN_OR_RETURN(const PushedVersion pushed,
                        PushCheckpoint(lock_server.get(), options, &never));
  progress.reset();
  WEFT_ASSIGN_OR_RETURN(state, lock_server->GetRunState(false));
  const std::string name = absl::StrCat("version ", pushed.version, " of ", flags.folder);
  if (pushed.already) {
    std::cout << "the run has gone on from " << name << " already\n";
  } else {
    std::cout << name << " is pushed (" << pushed.partitions << " partitions, "
              << FormatBytes(pushed.bytes) << "): the run "
              << (options.beginning ? "begins with its embeddings"
                                    : absl::StrCat("goes on after ", state.position().epoch(),
                                                   " of ", state.num_epochs(), " epochs"))
              << "\n";
  }
  if (state.phase() == v1::RUN_PHASE_PAUSED) {
    std::cout << "it is paused; it trains after: weft cluster resume " << flags.address << "\n";
  }
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

void AddCommand(CLI::App* command, const std::string& name, const std::shared_ptr<Flags>& flags,
                Action* action, absl::Status (*run)(const Flags&)) {
  AddOperatorFlags(*command, flags.get());
  command->callback([flags, action, run, name] {
    *action = [flags, run, name] {
      const absl::Status status = run(*flags);
      return status.ok() ? 0 : Fail(absl::StrCat("checkpoint ", name), status);
    };
  });
}

CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& about,
                     const std::shared_ptr<Flags>& flags, Action* action,
                     absl::Status (*run)(const Flags&)) {
  CLI::App* const command = parent->add_subcommand(name, about);
  AddCommand(command, name, flags, action, run);
  return command;
}

}  // namespace

void AddCheckpointCommand(CLI::App& app, Action* action) {
  CLI::App* const group = app.add_subcommand(
      "checkpoint", "List, fetch, bring, keep or go back to versions of a cluster");
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
  CLI::App* const push = group->add_subcommand(
      "push", "Let a run that is paused, or waits for its init_path, go on from a checkpoint");
  push->add_option("DIR", flags->folder, "A checkpoint folder, of weft or of PBG")->required();
  AddCommand(push, "push", flags, action, Push);
  push->add_flag("--beginning", flags->beginning,
                 "Its embeddings and parameters only: the run begins anew with them");
  push->footer(
      "Example:\n  weft cluster pause 127.0.0.1:7000\n"
      "  weft checkpoint push model 127.0.0.1:7000\n  weft cluster resume 127.0.0.1:7000\n");
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
