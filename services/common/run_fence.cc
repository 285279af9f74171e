#include "services/common/run_fence.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {

RunFence::RunFence(RunContext known) : known_(std::move(known)) {}

absl::Status RunFence::Check(const RunContext& heard) {
  MutexLock lock(&mu_);
  if (!heard.run_id.empty() && !known_.run_id.empty() && heard.run_id != known_.run_id) {
    return absl::FailedPreconditionError(
        absl::StrCat("another run: this is ", known_.run_id, ", asked for was ", heard.run_id));
  }
  if (heard.term != 0 && heard.term < known_.term) {
    // Its sessions go on: who calls will hear of the new one, and call again.
    return absl::UnavailableError(absl::StrCat(
        "term ", heard.term, " of the lock server is over: ", known_.term, " has begun"));
  }
  if (heard.term != 0 && heard.term == known_.term && heard.lock_server != 0 &&
      known_.lock_server != 0 && heard.lock_server != known_.lock_server) {
    return absl::AbortedError(absl::StrCat("two lock servers in term ", heard.term, " of run ",
                                           known_.run_id,
                                           ": a copy of the lock server's folder is running"));
  }
  if (heard.generation.has_value() && known_.generation.has_value() &&
      *heard.generation < *known_.generation) {
    return absl::AbortedError(absl::StrCat("generation ", *heard.generation,
                                           " is over: the run was rewound, this is ",
                                           *known_.generation));
  }
  if (!heard.run_id.empty()) known_.run_id = heard.run_id;
  if (heard.term > known_.term) {
    known_.term = heard.term;
    known_.lock_server = heard.lock_server;
  } else if (heard.term != 0 && heard.lock_server != 0) {
    known_.lock_server = heard.lock_server;
  }
  if (heard.generation.has_value()) known_.generation = heard.generation;
  return absl::OkStatus();
}

RunContext RunFence::known() const {
  MutexLock lock(&mu_);
  return known_;
}

}  // namespace weft
