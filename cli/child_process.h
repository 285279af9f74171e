// A program that this one starts, watches and ends. Its output goes to a file.
//
// It ends when this process does, however that ends, and gets no signals of the terminal: whoever
// started it decides when it is to stop.
// Thread-safety: not thread-safe. Start on a thread that lives as long as the process.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft::cli {

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> arguments;  // the first is the program
    std::string log_path;                // appended to
  };

  // Errors: NotFound, PermissionDenied for the program; those of opening the log.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const Options& options);
  // Kills it if it runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  const std::string& log_path() const { return log_path_; }

  // False once it has ended.
  bool Running();
  // After its end: the exit code, or 128 + the signal that ended it.
  int exit_code() const { return exit_code_; }
  bool died_of_signal() const { return exit_code_ > 128; }

  void Signal(int signal);
  // SIGTERM, and SIGKILL when it has not ended within `grace`.
  void Stop(absl::Duration grace);

 private:
  ChildProcess(pid_t pid, std::string log_path) : pid_(pid), log_path_(std::move(log_path)) {}
  void Ended(int status);

  const pid_t pid_;
  const std::string log_path_;
  bool running_ = true;
  int exit_code_ = 0;
};

// The last lines of a log, for messages; empty when there is none.
std::string LastLines(const std::string& path, int lines);

// The folder of this program, where its fellows lie.
std::string ProgramFolder();

}  // namespace weft::cli
