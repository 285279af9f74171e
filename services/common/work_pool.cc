#include "services/common/work_pool.h"

#include <utility>

#include "services/common/check.h"

namespace weft {

WorkPool::WorkPool(int num_threads) {
  WEFT_CHECK(num_threads >= 1);
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

WorkPool::~WorkPool() {
  {
    MutexLock lock(&mu_);
    closing_ = true;
  }
  arrived_.SignalAll();
}

void WorkPool::Submit(std::function<void()> work) {
  {
    MutexLock lock(&mu_);
    queue_.push_back(std::move(work));
  }
  arrived_.Signal();
}

void WorkPool::Work() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mu_);
      while (queue_.empty() && !closing_) arrived_.Wait(&mu_);
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace weft
