#include "services/trainer/serial_executor.h"

#include <utility>

namespace weft {

SerialExecutor::SerialExecutor() : thread_([this] { Loop(); }) {}

SerialExecutor::~SerialExecutor() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  changed_.SignalAll();
}

void SerialExecutor::Submit(std::function<void()> work) {
  {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(work));
  }
  changed_.SignalAll();
}

void SerialExecutor::Drain() {
  MutexLock lock(&mu_);
  while (running_ || !queue_.empty()) changed_.Wait(&mu_);
}

void SerialExecutor::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mu_);
      running_ = false;
      changed_.SignalAll();
      while (queue_.empty() && !closing_) changed_.Wait(&mu_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
      running_ = true;
    }
    work();
  }
}

}  // namespace weft
