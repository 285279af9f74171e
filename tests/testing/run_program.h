// Runs programs of the build as a user would: arguments in, exit code and output out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft::testing {

struct ProgramOptions {
  std::string input = {};                       // what it reads from standard input
  std::string folder = {};                      // its working directory; empty: that of the test
  std::map<std::string, std::string> env = {};  // beside the environment of the test
};

struct ProgramResult {
  int exit_code = -1;  // 128 + the signal, if one ended it; 127 when it could not be started
  std::string out;
  std::string err;
  int64_t peak_memory_bytes = 0;  // resident
};

// The path of the built `weft`.
std::string WeftPath();

// Runs `arguments[0]` with `arguments` until it ends.
ProgramResult RunProgram(const std::vector<std::string>& arguments,
                         const ProgramOptions& options = {});

// RunProgram of `weft` with these arguments.
ProgramResult RunWeft(std::vector<std::string> arguments, const ProgramOptions& options = {});

// A program that runs while the test goes on. Not thread-safe.
class RunningProgram {
 public:
  explicit RunningProgram(const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});
  ~RunningProgram();  // kills it if it still runs
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // What it has written so far.
  std::string out() const;
  std::string err() const;

  bool running();  // false once it has ended
  void Signal(int signal);
  ProgramResult Wait();

 private:
  // True once it has ended. `options`: of wait4.
  bool AwaitEnd(int options);

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int status_ = 0;
  int64_t peak_memory_bytes_ = 0;
};

}  // namespace weft::testing
