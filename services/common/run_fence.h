// RunFence remembers the newest life of the run that its process has heard of, and refuses what
// comes from an older one.
//
// A server is bound to one run for ever; within it terms and generations only grow. Two lock
// servers in one term are two copies of one folder: the first one heard is the one.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "services/common/cluster_types.h"
#include "services/common/mutex.h"

namespace weft {

class RunFence {
 public:
  // `known`: what this process remembers from before; may be empty.
  explicit RunFence(RunContext known = {});

  // Compares `heard` with what is known and remembers what is newer. Empty parts are not compared.
  // Errors (nothing is remembered then):
  //   FailedPrecondition: another run; the message has both ids.
  //   Unavailable: a lower term. Whoever speaks in it has yet to hear that the lock server
  //   restarted. Aborted: a lower generation, or another lock server in the same term.
  absl::Status Check(const RunContext& heard) ABSL_LOCKS_EXCLUDED(mu_);

  RunContext known() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  mutable Mutex mu_;
  RunContext known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
