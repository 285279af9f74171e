// weft status: what a cluster is doing.
#include <unistd.h>

#include <CLI/App.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/operator_options.h"
#include "cli/run_status.h"
#include "services/common/shutdown_signals.h"
#include "services/common/status_macros.h"

namespace weft::cli {
namespace {

constexpr absl::Duration kWatchInterval = absl::Seconds(1);

struct Flags : OperatorFlags {
  bool watch = false;
  bool json = false;
};

bool IsOver(const v1::GetRunStateResponse& state) {
  return state.phase() == v1::RUN_PHASE_DONE || state.phase() == v1::RUN_PHASE_FAILED;
}

void Show(const Flags& flags, const v1::GetRunStateResponse& state,
          const std::optional<RunPace>& pace) {
  if (flags.json) {
    std::cout << RunStatusToJson(state);
  } else {
    if (flags.watch && isatty(STDOUT_FILENO)) std::cout << "\x1b[H\x1b[2J";
    std::cout << FormatRunStatus(state, pace);
  }
  std::cout << std::flush;
}

// Until the run is over, or somebody ends it.
absl::Status Watch(const Flags& flags, GrpcOperatorClient* lock_server) {
  ShutdownSignals signals;
  signals.SetListener([lock_server] { lock_server->Cancel(); });
  std::optional<v1::GetRunStateResponse> before;
  auto looked = std::chrono::steady_clock::now();
  while (!signals.requested()) {
    absl::StatusOr<v1::GetRunStateResponse> state = lock_server->GetRunState(
        true, before.has_value() ? before->revision() : 0, absl::Seconds(10));
    if (signals.requested()) break;
    WEFT_RETURN_IF_ERROR(state.status());
    const auto now = std::chrono::steady_clock::now();
    std::optional<RunPace> pace;
    if (before.has_value()) pace = Pace(*before, *state, absl::FromChrono(now - looked));
    Show(flags, *state, pace);
    if (IsOver(*state)) break;
    before = *std::move(state);
    looked = now;
    signals.WaitFor(kWatchInterval);  // not more often than anybody can read
  }
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  WEFT_ASSIGN_OR_RETURN(const auto lock_server, Connect(flags));
  if (flags.watch) return Watch(flags, lock_server.get());
  WEFT_ASSIGN_OR_RETURN(const v1::GetRunStateResponse state, lock_server->GetRunState(true));
  Show(flags, state, std::nullopt);
  return absl::OkStatus();
}

}  // namespace

void AddStatusCommand(CLI::App& app, Action* action) {
  CLI::App* const command = app.add_subcommand("status", "What a cluster is doing");
  const auto flags = std::make_shared<Flags>();
  AddOperatorFlags(*command, flags.get());
  command->add_flag("--watch", flags->watch, "Look again whenever something changes");
  command->add_flag("--json", flags->json, "For machines");
  command->footer("Example:\n  weft status 127.0.0.1:7000 --watch\n");
  command->callback([flags, action] {
    *action = [flags] {
      const absl::Status status = Run(*flags);
      return status.ok() ? 0 : Fail("status", status);
    };
  });
}

}  // namespace weft::cli
