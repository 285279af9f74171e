#include "services/common/shutdown_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <utility>

namespace weft {
namespace {

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { WaitForSignals(); });
}

ShutdownSignals::~ShutdownSignals() {
  ending_ = true;
  pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

void ShutdownSignals::WaitForSignals() {
  const sigset_t signals = Signals();
  for (bool first = true;; first = false) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (ending_) return;
    if (!first) _exit(128 + signal);
    Request();
  }
}

void ShutdownSignals::Request() {
  {
    MutexLock lock(&mu_);
    if (requested_.exchange(true)) return;
    changed_.SignalAll();
  }
  MutexLock lock(&listener_mu_);
  if (listener_ != nullptr) std::exchange(listener_, nullptr)();
}

void ShutdownSignals::SetListener(std::function<void()> listener) {
  MutexLock lock(&listener_mu_);
  listener_ = std::move(listener);
  // A request that is made now waits for the lock.
  if (requested_ && listener_ != nullptr) std::exchange(listener_, nullptr)();
}

void ShutdownSignals::Wait() {
  MutexLock lock(&mu_);
  while (!requested_) changed_.Wait(&mu_);
}

bool ShutdownSignals::WaitFor(absl::Duration duration) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  MutexLock lock(&mu_);
  while (!requested_ && changed_.WaitUntil(&mu_, deadline)) {
  }
  return requested_;
}

}  // namespace weft
