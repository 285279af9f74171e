#include "services/trainer/cluster/reporting_partition_client.h"

#include <chrono>
#include <iterator>
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

void ReportingPartitionClient::NoteUnreadable(const ShardName& shard, const Place& place) {
  MutexLock lock(&mu_);
  unreadable_.emplace(shard, place);
}

ReportingPartitionClient::Unreadable ReportingPartitionClient::TakeUnreadable(
    const PartitionVersion& version) {
  MutexLock lock(&mu_);
  Unreadable taken;
  for (auto it = unreadable_.begin(); it != unreadable_.end();) {
    const auto next = std::next(it);
    if (it->first.version == version) taken.insert(unreadable_.extract(it));
    it = next;
  }
  return taken;
}

absl::Status ReportingPartitionClient::Read(const PartitionVersion& version,
                                            EmbeddingPartition* out) {
  return Read(version, [&]() -> absl::StatusOr<int64_t> {
    WEFT_RETURN_IF_ERROR(client_->Read(version, out));
    return Bytes(*out);
  });
}

absl::Status ReportingPartitionClient::Read(const PartitionVersion& version,
                                            absl::FunctionRef<absl::StatusOr<int64_t>()> read) {
  Backoff backoff(retry_, version.token);
  while (true) {
    const absl::StatusOr<int64_t> bytes = read();
    const absl::Status& status = bytes.status();
    const Unreadable unreadable = TakeUnreadable(version);
    const std::optional<Token> grant = places_->GrantFrom(version);
    const absl::Status told = grant.has_value() ? Report(*grant, unreadable) : absl::OkStatus();
    if (status.ok()) {
      report_moved_(*bytes);
      return status;  // if the session has ended, its next call says so
    }
    // What all places say is final for them, not for the version.
    const bool final = absl::IsNotFound(status) || absl::IsDataLoss(status);
    if (!grant.has_value() || unreadable.empty() || !final) return status;
    WEFT_RETURN_IF_ERROR(told);
    const std::optional<absl::Duration> delay = backoff.Next(std::chrono::steady_clock::now());
    if (!delay.has_value()) return status;
    if (!cancel_->WaitFor(*delay)) return absl::CancelledError(status.message());
  }
}

absl::Status ReportingPartitionClient::Report(Token grant, const Unreadable& unreadable) {
  for (const auto& [shard, place] : unreadable) {
    WEFT_ASSIGN_OR_RETURN(std::vector<Place> left,
                          report_unreadable_(grant, shard.version, shard.shard, place));
    if (!left.empty()) places_->SetPlaces(shard.version, shard.shard, std::move(left));
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
