#include "services/trainer/cluster/reporting_partition_client.h"

#include <chrono>
#include <optional>
#include <utility>

#include "services/common/status_macros.h"

namespace weft {
namespace {

int64_t Bytes(const EmbeddingPartition& partition) {
  return partition.count() * (partition.dimension() + 1) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

ReportingPartitionClient::ReportingPartitionClient(PartitionClient* client, PlaceDirectory* places,
                                                   ReportUnreadable report_unreadable,
                                                   ReportMoved report_moved,
                                                   const RetryOptions& retry, CancelFlag* cancel)
    : client_(client),
      places_(places),
      report_unreadable_(std::move(report_unreadable)),
      report_moved_(std::move(report_moved)),
      retry_(retry),
      cancel_(cancel) {}

absl::Status ReportingPartitionClient::Read(const PartitionVersion& version,
                                            EmbeddingPartition* out) {
  Backoff backoff(retry_, version.token);
  while (true) {
    const absl::Status status = client_->Read(version, out);
    if (status.ok()) {
      report_moved_(Bytes(*out));
      return status;
    }
    // What all places say is final for them, not for the version. What is only hinted is no
    // business of the lock server's.
    const std::optional<Token> grant = places_->GrantFrom(version);
    if (!grant.has_value() || !(absl::IsNotFound(status) || absl::IsDataLoss(status))) {
      return status;
    }
    WEFT_RETURN_IF_ERROR(ReportAll(*grant, version));
    const std::optional<absl::Duration> delay = backoff.Next(std::chrono::steady_clock::now());
    if (!delay.has_value()) return status;
    if (!cancel_->WaitFor(*delay)) return absl::CancelledError(status.message());
  }
}

absl::Status ReportingPartitionClient::ReportAll(Token grant, const PartitionVersion& version) {
  WEFT_ASSIGN_OR_RETURN(const VersionInfo where, places_->Find(version));
  for (const ShardInfo& shard : where.shards) {
    for (const Place& place : shard.places) {
      WEFT_ASSIGN_OR_RETURN(std::vector<Place> left,
                            report_unreadable_(grant, version, shard.shard, place));
      if (!left.empty()) places_->SetPlaces(version, shard.shard, std::move(left));
    }
  }
  return absl::OkStatus();
}

absl::Status ReportingPartitionClient::Store(const PartitionVersion& version,
                                             const EmbeddingPartition& partition) {
  WEFT_RETURN_IF_ERROR(client_->Store(version, partition));
  report_moved_(Bytes(partition));
  return absl::OkStatus();
}

}  // namespace weft
