// ClusterPartitionClient is PartitionClient over the partition servers of a cluster: the places
// that the lock server named with a grant, and a transfer that moves the shards.
#pragma once

#include "services/common/place_directory.h"
#include "services/partition_server/partition_client.h"
#include "services/partition_server/partition_transfer.h"

namespace weft {

class ClusterPartitionClient : public PartitionClient {
 public:
  // Both must outlive this object. `transfer` finds servers in `places`, too.
  ClusterPartitionClient(PlaceDirectory* places, const PartitionTransfer* transfer)
      : places_(places), transfer_(transfer) {}

  // Errors: also those of PlaceDirectory::Find and PartitionTransfer::Read.
  absl::Status Read(const PartitionVersion& version, EmbeddingPartition* out) override;
  // Enters where it lies, for the release and for readers. Errors: also those of
  // PlaceDirectory::PlanFor and PartitionTransfer::Store.
  absl::Status Store(const PartitionVersion& version, const EmbeddingPartition& partition) override;

 private:
  PlaceDirectory* const places_;
  const PartitionTransfer* const transfer_;
};

// Finds servers where the directory knows them.
FindServer FindServerIn(const PlaceDirectory* places);

}  // namespace weft
