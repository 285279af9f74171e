// Readiness is whether a process does its work yet, and if not, what it waits for.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft {

class Readiness {
 public:
  explicit Readiness(std::string waits_for = "it starts") : waits_for_(std::move(waits_for)) {}

  void SetReady() { Set(""); }
  // One line: "waits for the lock server at HOST:PORT".
  void SetWaiting(std::string reason) { Set(std::move(reason)); }

  // Empty: it is ready.
  std::string waits_for() const {
    MutexLock lock(&mu_);
    return waits_for_;
  }

 private:
  void Set(std::string reason) {
    MutexLock lock(&mu_);
    waits_for_ = std::move(reason);
  }

  mutable Mutex mu_;
  std::string waits_for_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
