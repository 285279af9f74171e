// ReportingPartitionClient tells the lock server what concerns it of moving partitions: that bytes
// move, and which places cannot give a shard of a grant's base, whether another place could or not.
// If none could, the lock server decides: it names other places, or has the run rewound; until it
// has, the reader asks again, for as long as it is patient.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/cluster_types.h"
#include "services/common/mutex.h"
#include "services/common/place_directory.h"
#include "services/common/retry.h"
#include "services/partition_server/partition_client.h"

namespace weft {

class ReportingPartitionClient : public PartitionClient {
 public:
  // Tells that a place cannot give a shard; answers with the places that are left.
  using ReportUnreadable = std::function<absl::StatusOr<std::vector<Place>>(
      Token grant, const PartitionVersion& version, uint32_t shard, const Place& place)>;
  using ReportMoved = std::function<void(int64_t bytes)>;

  // All must outlive this object. `cancel` ends waits.
  ReportingPartitionClient(PartitionClient* client, PlaceDirectory* places,
                           ReportUnreadable report_unreadable, ReportMoved report_moved,
                           const RetryOptions& retry, CancelFlag* cancel);

  // A place says that a shard is not there, or damaged: told to the lock server when the read is
  // over, once. What is read for a hint alone is no business of the lock server's.
  void NoteUnreadable(const ShardName& shard, const Place& place) ABSL_LOCKS_EXCLUDED(mu_);

  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override;
  // The same for what `read` reads of `version`, which gives the number of bytes.
  absl::Status Read(const PartitionVersion& version,
                    absl::FunctionRef<absl::StatusOr<int64_t>()> read);
  absl::Status Store(const PartitionVersion& version, const EmbeddingPartition& partition) override;

 private:
  using Unreadable = std::set<std::pair<ShardName, Place>>;

  // What was noted of the version, which is forgotten.
  Unreadable TakeUnreadable(const PartitionVersion& version) ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Report(Token grant, const Unreadable& unreadable);

  PartitionClient* const client_;
  PlaceDirectory* const places_;
  const ReportUnreadable report_unreadable_;
  const ReportMoved report_moved_;
  const RetryOptions retry_;
  CancelFlag* const cancel_;

  Mutex mu_;
  Unreadable unreadable_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
