#include "services/partition_server/cluster_partition_client.h"

#include <optional>
#include <utility>

#include "services/common/status_macros.h"

namespace weft {

absl::Status ClusterPartitionClient::Read(const PartitionVersion& version,
                                          EmbeddingPartition* out) {
  WEFT_ASSIGN_OR_RETURN(const VersionInfo where, places_->Find(version));
  // When the session has ended nobody keeps the version, and what is said of it means nothing.
  const auto session = [this] { return places_->CheckSession(); };
  const absl::Status status = transfer_->Read(where, out, session);
  if (!status.ok()) WEFT_RETURN_IF_ERROR(session());
  return status;
}

absl::Status ClusterPartitionClient::Store(const PartitionVersion& version,
                                           const EmbeddingPartition& partition) {
  const auto targets = [&]() -> absl::StatusOr<StoreTargets> {
    WEFT_ASSIGN_OR_RETURN(PlaceDirectory::StorePlan plan, places_->PlanFor(version.token));
    return StoreTargets{std::move(plan.servers), plan.replicas};
  };
  WEFT_ASSIGN_OR_RETURN(VersionInfo stored, transfer_->Store(version, partition, targets));
  places_->SetStored(std::move(stored));
  return absl::OkStatus();
}

FindServer FindServerIn(const PlaceDirectory* places) {
  return [places](const Place& place) -> std::optional<ServerInfo> {
    // Also where the process has ended that the place names: a memory store that was told to end
    // wrote what it had to its disk, and its next process says what is there.
    return places->Server(place.store_id);
  };
}

}  // namespace weft
