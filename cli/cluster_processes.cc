#include "cli/cluster_processes.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/status_macros.h"
#include "services/common/transfer_metrics.h"

namespace weft::cli {
namespace {

constexpr absl::Duration kLookInterval = absl::Milliseconds(20);
// A process that dies again and again is not started again at once.
constexpr auto kRestartPause = std::chrono::seconds(1);
constexpr absl::Duration kTrainerGrace = absl::Seconds(30);
constexpr absl::Duration kServerGrace = absl::Seconds(15);
constexpr int kLogLines = 5;

std::string AddressIn(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterProcesses>> ClusterProcesses::Start(
    Options options, ShutdownSignals* signals) {
  std::unique_ptr<ClusterProcesses> processes(new ClusterProcesses(std::move(options), signals));
  WEFT_RETURN_IF_ERROR(processes->StartAll());
  return processes;
}

ClusterProcesses::~ClusterProcesses() { Stop(); }

void ClusterProcesses::Tell(const std::string& event) const {
  if (options_.on_event != nullptr) options_.on_event(event);
}

std::string ClusterProcesses::AddressFile(const Member& member) const {
  return absl::StrCat(options_.data_dir, "/addresses/", member.name);
}

std::string ClusterProcesses::MetricsFile(const std::string& name) const {
  return absl::StrCat(options_.data_dir, "/metrics/", name);
}

std::string ClusterProcesses::MetricsAddress(const std::string& name) const {
  return AddressIn(MetricsFile(name));
}

std::vector<std::string> ClusterProcesses::MetricsArguments(const std::string& name) const {
  return {"--metrics-listen", "127.0.0.1:0", "--metrics-address-file", MetricsFile(name)};
}

absl::Status ClusterProcesses::WriteMetricsTargets() {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  for (const Member& member : members_) {
    const std::string address = member.ended ? "" : MetricsAddress(member.name);
    if (address.empty()) continue;
    // Not "role": metrics have that.
    const std::string service(PeerRoleName(PeerRoleOf(member.role)));
    groups.push_back({{"targets", nlohmann::ordered_json::array({address})},
                      {"labels", {{"service", service}, {"process", member.name}}}});
  }
  std::string targets = groups.dump(2) + "\n";
  if (targets == metrics_targets_) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(WriteFileAtomically(MetricsTargets(), targets));
  metrics_targets_ = std::move(targets);
  return absl::OkStatus();
}

std::string ClusterProcesses::LogPath(const std::string& name) const {
  return absl::StrCat(LogFolder(), "/", name, ".log");
}

void ClusterProcesses::AddServer(ServerRole role, const std::string& name,
                                 const std::string& program, std::vector<std::string> arguments) {
  Member& member = members_.emplace_back();
  member.role = role;
  member.name = name;
  member.arguments = {absl::StrCat(options_.programs, "/", program), "--data-dir",
                      absl::StrCat(options_.data_dir, "/", name), "--address-file",
                      AddressFile(member)};
  std::ranges::move(arguments, std::back_inserter(member.arguments));
  std::ranges::move(MetricsArguments(name), std::back_inserter(member.arguments));
}

absl::Status ClusterProcesses::StartAll() {
  WEFT_RETURN_IF_ERROR(MakeDirectories(LogFolder()));
  WEFT_RETURN_IF_ERROR(MakeDirectories(options_.data_dir + "/addresses"));
  WEFT_RETURN_IF_ERROR(MakeDirectories(options_.data_dir + "/metrics"));
  std::vector<std::string> lock = {"--config", options_.config, "--param-servers",
                                   absl::StrCat(options_.param_servers)};
  for (const std::string& override_key : options_.overrides) {
    lock.push_back("--set");
    lock.push_back(override_key);
  }
  AddServer(ServerRole::kLock, "lock-server", "weft-lock-server", std::move(lock));
  WEFT_RETURN_IF_ERROR(Launch(&members_.front()));
  WEFT_RETURN_IF_ERROR(AwaitAddress(&members_.front()));
  const std::string address = lock_server();
  for (int i = 0; i < options_.partition_servers; ++i) {
    AddServer(ServerRole::kPartition, absl::StrCat("partition-server-", i), "weft-partition-server",
              {"--lock-server", address, "--store", options_.store});
  }
  for (int i = 0; i < options_.param_servers; ++i) {
    AddServer(ServerRole::kParam, absl::StrCat("param-server-", i), "weft-param-server",
              {"--lock-server", address});
  }
  for (size_t i = 1; i < members_.size(); ++i) WEFT_RETURN_IF_ERROR(Launch(&members_[i]));
  for (size_t i = 1; i < members_.size(); ++i) WEFT_RETURN_IF_ERROR(AwaitAddress(&members_[i]));
  for (int i = 0; i < options_.trainers; ++i) WEFT_RETURN_IF_ERROR(AddTrainer());
  return WriteMetricsTargets();
}

absl::Status ClusterProcesses::AddTrainer() {
  Member member;
  member.role = ServerRole::kTrainer;
  member.name = absl::StrCat("trainer-", next_trainer_++);
  member.arguments = {options_.programs + "/weft-trainer",
                      "--lock-server",
                      lock_server(),
                      "--name",
                      member.name,
                      "--threads",
                      absl::StrCat(options_.threads)};
  std::ranges::move(MetricsArguments(member.name), std::back_inserter(member.arguments));
  WEFT_RETURN_IF_ERROR(Launch(&member));
  members_.push_back(std::move(member));
  return absl::OkStatus();
}

absl::Status ClusterProcesses::Launch(Member* member) {
  std::vector<std::string> arguments = member->arguments;
  std::error_code ignored;
  std::filesystem::remove(MetricsFile(member->name), ignored);
  std::ranges::copy(options_.arguments, std::back_inserter(arguments));
  if (member->role != ServerRole::kTrainer) {
    std::filesystem::remove(AddressFile(*member), ignored);
    // Others know the address: it stays the same when the server is started again.
    if (!member->address.empty()) {
      arguments.push_back("--listen");
      arguments.push_back(member->address);
    }
  }
  if (options_.on_launch != nullptr) options_.on_launch(member->name, &arguments);
  WEFT_ASSIGN_OR_RETURN(member->process,
                        ChildProcess::Start({std::move(arguments), LogPath(member->name)}));
  member->started = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

absl::Status ClusterProcesses::EndedEarly(const Member& member) const {
  const int code = member.process->exit_code();
  return absl::AbortedError(absl::StrCat(
      member.name, " has ended ",
      member.process->died_of_signal() ? absl::StrCat("by signal ", code - 128)
                                       : absl::StrCat("with exit code ", code),
      "; the end of ", LogPath(member.name), ":\n", LastLines(LogPath(member.name), kLogLines)));
}

absl::Status ClusterProcesses::AwaitAddress(Member* member) {
  const absl::Time deadline = absl::Now() + options_.start_within;
  while (absl::Now() < deadline) {
    member->address = AddressIn(AddressFile(*member));
    if (!member->address.empty()) return absl::OkStatus();
    if (!member->process->Running()) return EndedEarly(*member);
    if (signals_->WaitFor(kLookInterval)) return absl::CancelledError("stopped");
  }
  return absl::DeadlineExceededError(absl::StrCat(member->name, " did not get ready within ",
                                                  absl::FormatDuration(options_.start_within),
                                                  "; its log is ", LogPath(member->name)));
}

absl::Status ClusterProcesses::Supervise() {
  for (Member& member : members_) WEFT_RETURN_IF_ERROR(LookAfter(&member));
  WEFT_RETURN_IF_ERROR(WriteMetricsTargets());
  const auto is_trainer = [](const Member& m) { return m.role == ServerRole::kTrainer; };
  // With an error, that is: those that end well find the run over.
  for (const Member& member : members_) {
    if (!is_trainer(member) || !member.ended || member.process->exit_code() == 0) continue;
    const bool others =
        std::ranges::any_of(members_, [&](const Member& m) { return is_trainer(m) && !m.ended; });
    if (!others) return EndedEarly(member);
  }
  return absl::OkStatus();
}

absl::Status ClusterProcesses::LookAfter(Member* member) {
  if (member->ended || member->process->Running()) return absl::OkStatus();
  if (std::exchange(member->restarting, false)) return Launch(member);
  const bool failed_server =
      member->role != ServerRole::kTrainer && member->process->exit_code() != 0;
  if (member->process->died_of_signal() || (failed_server && options_.restart_failed_servers)) {
    if (std::chrono::steady_clock::now() - member->started < kRestartPause) {
      return absl::OkStatus();  // at a later look
    }
    Tell(member->process->died_of_signal()
             ? absl::StrCat(member->name, " was ended by signal ",
                            member->process->exit_code() - 128, "; it is started again")
             : std::string(EndedEarly(*member).message()));
    return Launch(member);
  }
  if (member->role != ServerRole::kTrainer) return EndedEarly(*member);
  member->ended = true;
  if (member->process->exit_code() != 0) Tell(std::string(EndedEarly(*member).message()));
  return absl::OkStatus();
}

int ClusterProcesses::RunningTrainers() {
  int running = 0;
  for (Member& member : members_) {
    if (member.role == ServerRole::kTrainer && member.process->Running()) ++running;
  }
  return running;
}

ChildProcess* ClusterProcesses::Find(const std::string& name) {
  for (Member& member : members_) {
    if (member.name == name) return member.process.get();
  }
  return nullptr;
}

std::vector<std::string> ClusterProcesses::Names() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

void ClusterProcesses::Restart(const std::string& name) {
  for (Member& member : members_) {
    if (member.name != name) continue;
    member.restarting = true;
    member.process->Signal(SIGTERM);
  }
}

void ClusterProcesses::StopRole(ServerRole role, absl::Duration grace) {
  for (Member& member : members_) {
    if (member.role == role && member.process != nullptr) member.process->Signal(SIGTERM);
  }
  for (Member& member : members_) {
    if (member.role == role && member.process != nullptr) member.process->Stop(grace);
  }
}

void ClusterProcesses::Stop() {
  StopRole(ServerRole::kTrainer, kTrainerGrace);
  StopRole(ServerRole::kParam, kServerGrace);
  StopRole(ServerRole::kPartition, kServerGrace);
  StopRole(ServerRole::kLock, kServerGrace);
}

}  // namespace weft::cli
