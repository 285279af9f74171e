// ClusterEdgeSource reads the edges that a cluster's partition servers hold, at the places that the
// lock server named with a grant, shard by shard: in memory is one shard beside what was taken.
//
// A bucket that no grant of the trainer names, or has hinted, cannot be read (NotFound); after the
// end of the session nothing can (Aborted).
// Thread-safety: may be called from any thread.
#pragma once

#include "services/common/place_directory.h"
#include "services/common/types.h"
#include "services/partition_server/partition_transfer.h"
#include "services/trainer/cluster/reporting_partition_client.h"
#include "services/trainer/edge_source.h"

namespace weft {

class ClusterEdgeSource : public EdgeSource {
 public:
  struct Options {
    Token token = kInitialToken;  // of the run's edges
    int num_lhs = 1;              // partitions on each side
    int num_rhs = 1;
  };

  // All must outlive this object. `reports`: tells the lock server what cannot be read.
  ClusterEdgeSource(const Options& options, PlaceDirectory* places,
                    const PartitionTransfer* transfer, ReportingPartitionClient* reports)
      : options_(options), places_(places), transfer_(transfer), reports_(reports) {}

  // Errors: NotFound; also those of PartitionTransfer::Read.
  absl::StatusOr<int64_t> Count(int edge_path, Bucket bucket) override;
  absl::Status Read(int edge_path, Bucket bucket, int64_t begin, int64_t end,
                    const EdgeLimits& limits, Take take) override;

 private:
  PartitionVersion VersionOf(int edge_path, Bucket bucket) const {
    return EdgesVersion(options_.token, edge_path, bucket, options_.num_lhs, options_.num_rhs);
  }

  const Options options_;
  PlaceDirectory* const places_;
  const PartitionTransfer* const transfer_;
  ReportingPartitionClient* const reports_;
};

}  // namespace weft
