#include "services/param_server/partition_snapshot_blobs.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/partition_server/blob_format.h"

namespace weft {
namespace {

absl::string_view Segment(const std::string& bytes, int64_t index) {
  const auto size = static_cast<int64_t>(bytes.size());
  int64_t begin = 0;
  for (int64_t i = 0; i < index; ++i) begin += SegmentBytes(size, i);
  return absl::string_view(bytes).substr(static_cast<size_t>(begin),
                                         static_cast<size_t>(SegmentBytes(size, index)));
}

absl::Status At(const absl::StatusOr<std::string>& address, const absl::Status& status) {
  if (!address.ok()) return status;
  return Annotate(status, absl::StrCat(RoleName(ServerRole::kPartition), " at ", *address));
}

}  // namespace

void PartitionSnapshotBlobs::SetServers(ServerList servers) {
  MutexLock lock(&mu_);
  servers_ = std::move(servers);
}

absl::StatusOr<std::string> PartitionSnapshotBlobs::AddressOf(StoreId store) const {
  MutexLock lock(&mu_);
  for (const ServerInfo& server : servers_.partition_servers) {
    if (server.store_id == store) return server.address;
  }
  return absl::UnavailableError("a partition server that is not registered");
}

absl::StatusOr<VersionInfo> PartitionSnapshotBlobs::Store(const StoreSnapshot& order,
                                                          const ParamSnapshot& snapshot) {
  std::string bytes;
  bytes.reserve(snapshot.EncodedBytes());
  WEFT_RETURN_IF_ERROR(snapshot.Encode([&](std::string_view piece) {
    bytes.append(piece);
    return absl::OkStatus();
  }));
  const auto size = static_cast<int64_t>(bytes.size());
  std::vector<uint64_t> checksums;
  for (int64_t i = 0; i < NumSegments(size); ++i) {
    checksums.push_back(SegmentChecksum({Segment(bytes, i)}));
  }
  const BlobInfo info{size, BlobChecksum(size, checksums)};
  VersionInfo stored{order.version, {{0, 0, 0, size, info.checksum, {}}}};
  const size_t wanted =
      std::min(static_cast<size_t>(std::max(order.replicas, 1)), order.store_at.size());
  absl::Status status = absl::UnavailableError("no partition server to store a snapshot at");
  for (const StoreId store : order.store_at) {
    if (stored.shards[0].places.size() == wanted) break;
    const absl::StatusOr<std::string> address = AddressOf(store);
    const absl::StatusOr<Place> place =
        address.ok() ? transfer_->Put(*address, {order.version, 0}, info, checksums,
                                      [&](int64_t i) { return BytePieces{Segment(bytes, i)}; })
                     : absl::StatusOr<Place>(address.status());
    if (place.ok()) {
      AddReplica(*place, &stored.shards[0].places);
    } else {
      status = At(address, place.status());
    }
  }
  if (wanted == 0 || stored.shards[0].places.size() < wanted) return status;
  return stored;
}

absl::StatusOr<ParamSnapshot> PartitionSnapshotBlobs::Read(const VersionInfo& version) {
  if (version.shards.size() != 1) {
    return absl::InvalidArgumentError("a snapshot of parameters has one shard");
  }
  const ShardInfo& shard = version.shards[0];
  absl::Status status = absl::NotFoundError("a snapshot without places");
  for (const Place& place : shard.places) {
    const absl::StatusOr<std::string> address = AddressOf(place.store_id);
    if (!address.ok()) {
      status = address.status();
      continue;
    }
    std::string bytes;
    status = transfer_->Get(*address, {version.version, 0}, {shard.size_bytes, shard.xxh3},
                            [&](int64_t, uint64_t checksum,
                                absl::Span<const absl::string_view> pieces) -> absl::Status {
                              if (SegmentChecksum(pieces) != checksum) {
                                return absl::DataLossError("a segment's checksum is wrong");
                              }
                              for (const absl::string_view p : pieces) {
                                bytes.append(p.data(), p.size());
                              }
                              return absl::OkStatus();
                            });
    if (status.ok()) return ParamSnapshot::Decode(bytes);
    status = At(address, status);
  }
  return Annotate(status, absl::StrCat("cannot read the snapshot of parameter server ",
                                       version.version.key.partition));
}

}  // namespace weft
