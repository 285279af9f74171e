// TransferMetrics counts what a process moves of partitions and shared parameters: bytes by the
// role of the peer, and how fast single transfers are.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/common/cluster_types.h"
#include "services/common/metrics.h"
#include "services/common/mutex.h"

namespace weft {

// Who is at the other end, as it says itself. Good for counting, not for trusting.
enum class PeerRole { kLock, kPartition, kParam, kTrainer, kOther, kCount };

PeerRole PeerRoleOf(ServerRole role);
// As labels and calls have it: lock, partition, param, trainer, other.
absl::string_view PeerRoleName(PeerRole role);
// kOther for what is none of these.
PeerRole PeerRoleFromName(absl::string_view name);

class TransferMetrics {
 public:
  enum class Direction { kReceived, kSent, kCount };

  void AddReceived(PeerRole peer, int64_t bytes) {
    received_[peer].Add(static_cast<double>(bytes));
  }
  void AddSent(PeerRole peer, int64_t bytes) { sent_[peer].Add(static_cast<double>(bytes)); }
  // A transfer that this process asked for is over.
  void Finished(Direction direction, int64_t bytes, absl::Duration took) ABSL_LOCKS_EXCLUDED(mu_);

  void Write(MetricsPage* page) const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Counters<PeerRole> received_;
  Counters<PeerRole> sent_;
  mutable Mutex mu_;
  // By direction.
  Histogram rates_[2] ABSL_GUARDED_BY(mu_) = {Histogram(Boundaries()), Histogram(Boundaries())};

  static std::vector<double> Boundaries();
};

}  // namespace weft
