#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/common/file_util.h"

namespace weft::cli {
namespace {

// Between fork and exec: only what is safe there.
[[noreturn]] void BecomeProgram(char* const* arguments, int log, pid_t parent, int report) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it has ended already
  setpgid(0, 0);                        // signals of the terminal are not for it
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(arguments[0], arguments);
  const int error = errno;
  const ssize_t ignored = write(report, &error, sizeof(error));
  static_cast<void>(ignored);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  const int log = open(options.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return ErrnoStatus(errno, options.log_path);
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    const int error = errno;
    close(log);
    return ErrnoStatus(error, "pipe");
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeProgram(arguments.data(), log, parent, report[1]);
  const int fork_error = errno;
  close(log);
  close(report[1]);
  int error = 0;
  // Closed by a successful exec.
  const bool failed = pid >= 0 && read(report[0], &error, sizeof(error)) == sizeof(error);
  close(report[0]);
  if (pid < 0) return ErrnoStatus(fork_error, "fork");
  if (failed) {
    waitpid(pid, nullptr, 0);
    return ErrnoStatus(error, options.arguments[0]);
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, options.log_path));
}

ChildProcess::~ChildProcess() { Stop(absl::ZeroDuration()); }

void ChildProcess::Ended(int status) {
  running_ = false;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool ChildProcess::Running() {
  int status = 0;
  if (running_ && waitpid(pid_, &status, WNOHANG) == pid_) Ended(status);
  return running_;
}

void ChildProcess::Signal(int signal) {
  if (Running()) kill(pid_, signal);
}

void ChildProcess::Stop(absl::Duration grace) {
  if (!Running()) return;
  if (grace > absl::ZeroDuration()) {
    kill(pid_, SIGTERM);
    // Not pidfd_open: glibc 2.36 declares it for C alone.
    const auto fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (fd >= 0) {
      struct pollfd ended = {fd, POLLIN, 0};
      poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(grace)));
      close(fd);
    }
    if (!Running()) return;
  }
  kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  Ended(status);
}

std::string LastLines(const std::string& path, int lines) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return "";
  std::vector<std::string> all = absl::StrSplit(*text, '\n', absl::SkipWhitespace());
  const auto keep = std::min<size_t>(all.size(), static_cast<size_t>(lines));
  return absl::StrJoin(all.end() - static_cast<std::ptrdiff_t>(keep), all.end(), "\n");
}

std::string ProgramFolder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : program.parent_path().string();
}

}  // namespace weft::cli
