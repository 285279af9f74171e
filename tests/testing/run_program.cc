#include "tests/testing/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "services/common/check.h"

extern char** environ;

namespace weft::testing {
namespace {

// An open file without a name.
int TemporaryFile() {
  std::FILE* const file = std::tmpfile();
  WEFT_CHECK(file != nullptr);
  const int fd = fcntl(fileno(file), F_DUPFD_CLOEXEC, 3);
  std::fclose(file);
  WEFT_CHECK(fd >= 0);
  return fd;
}

std::string Contents(int fd) {
  std::string text;
  char buffer[4096];
  off_t offset = 0;
  for (;;) {
    const ssize_t n = pread(fd, buffer, sizeof(buffer), offset);
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    offset += n;
  }
}

void WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    WEFT_CHECK(n > 0);
    written += static_cast<size_t>(n);
  }
  WEFT_CHECK(lseek(fd, 0, SEEK_SET) == 0);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : more) variables.push_back(name + "=" + value);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!more.contains(text.substr(0, text.find('=')))) variables.push_back(text);
  }
  return variables;
}

}  // namespace

std::string WeftPath() {
  const char* const build = std::getenv("WEFT_BINARY_DIR");  // set by ctest
  return std::string(build == nullptr ? "." : build) + "/bin/weft";
}

RunningProgram::RunningProgram(const std::vector<std::string>& arguments,
                               const ProgramOptions& options)
    : out_(TemporaryFile()), err_(TemporaryFile()) {
  const int in = TemporaryFile();
  WriteAll(in, options.input);
  std::vector<std::string> argument_copy = arguments;
  std::vector<std::string> variables = Environment(options.env);
  const std::vector<char*> argv = Pointers(argument_copy);
  const std::vector<char*> envp = Pointers(variables);
  pid_ = fork();
  WEFT_CHECK(pid_ >= 0);
  if (pid_ == 0) {  // only calls that are safe after fork
    if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(127);
    if (dup2(in, 0) < 0 || dup2(out_, 1) < 0 || dup2(err_, 2) < 0) _exit(127);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(in);
}

RunningProgram::~RunningProgram() {
  if (running()) {
    Signal(SIGKILL);
    Wait();
  }
  close(out_);
  close(err_);
}

std::string RunningProgram::out() const { return Contents(out_); }
std::string RunningProgram::err() const { return Contents(err_); }

bool RunningProgram::AwaitEnd(int options) {
  if (pid_ < 0) return true;
  struct rusage usage = {};
  pid_t ended = 0;
  do {
    ended = wait4(pid_, &status_, options, &usage);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return false;
  peak_memory_bytes_ = int64_t{usage.ru_maxrss} << 10;
  pid_ = -1;
  return true;
}

bool RunningProgram::running() { return !AwaitEnd(WNOHANG); }

void RunningProgram::Signal(int signal) {
  if (pid_ > 0) kill(pid_, signal);
}

ProgramResult RunningProgram::Wait() {
  AwaitEnd(0);
  ProgramResult result;
  result.peak_memory_bytes = peak_memory_bytes_;
  result.exit_code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  result.out = out();
  result.err = err();
  return result;
}

ProgramResult RunProgram(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  return RunningProgram(arguments, options).Wait();
}

ProgramResult RunWeft(std::vector<std::string> arguments, const ProgramOptions& options) {
  arguments.insert(arguments.begin(), WeftPath());
  return RunProgram(arguments, options);
}

}  // namespace weft::testing
