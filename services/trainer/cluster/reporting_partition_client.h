// ReportingPartitionClient tells the lock server what concerns it of moving partitions: that bytes
// move, and that no place gives the base of a grant. The lock server decides then: it names other
// places, or has the run rewound; until it has, the reader asks again, for as long as it is
// patient.
//
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override;
  absl::Status Store(const PartitionVersion& version, const EmbeddingPartition& partition) override;

 private:
  absl::Status ReportAll(Token grant, const PartitionVersion& version);

  PartitionClient* const client_;
  PlaceDirectory* const places_;
  const ReportUnreadable report_unreadable_;
  const ReportMoved report_moved_;
  const RetryOptions retry_;
  CancelFlag* const cancel_;
};

}  // namespace weft
