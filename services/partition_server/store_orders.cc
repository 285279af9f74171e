#include "services/partition_server/store_orders.h"

#include <memory>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"

namespace weft {

OrderResult StoreOrders::Execute(const NumberedOrder& order,
                                 const std::vector<ServerInfo>& servers) {
  OrderResult result;
  result.order_id = order.id;
  absl::StatusOr<VersionInfo> stored = VersionInfo();
  if (const auto* persist = std::get_if<PersistShards>(&order.order)) {
    result.status = Persist(*persist);
    return result;
  }
  if (const auto* verify = std::get_if<VerifyShard>(&order.order)) {
    result.status = store_->Verify(verify->shard).status();
    return result;
  }
  if (const auto* copy = std::get_if<CopyShard>(&order.order)) {
    stored = CopyFromPlaces(*copy, servers);
  } else if (const auto* manifest = std::get_if<StoreManifest>(&order.order)) {
    stored = Store(*manifest);
  } else {
    stored = absl::InvalidArgumentError("this order is not for a partition server");
  }
  result.status = stored.status();
  if (stored.ok()) result.stored = *std::move(stored);
  return result;
}

absl::Status StoreOrders::Persist(const PersistShards& order) {
  absl::Status status;
  for (const ShardName& name : order.shards) status.Update(store_->Persist(name));
  return status;
}

absl::StatusOr<VersionInfo> StoreOrders::CopyFromPlaces(const CopyShard& order,
                                                        const std::vector<ServerInfo>& servers) {
  std::vector<std::string> addresses;
  for (const Place& place : order.shard.places) {
    for (const ServerInfo& server : servers) {
      const bool there = place.store_id == server.store_id &&
                         (place.incarnation == 0 || place.incarnation == server.incarnation);
      if (there && server.store_id != store_->store_id()) addresses.push_back(server.address);
    }
  }
  WEFT_ASSIGN_OR_RETURN(const Place place,
                        Copy({order.version, order.shard.shard},
                             {order.shard.size_bytes, order.shard.xxh3}, addresses));
  VersionInfo stored = {order.version, {order.shard}};
  stored.shards[0].places = {place};
  return stored;
}

absl::StatusOr<Place> StoreOrders::Copy(const ShardName& name, const BlobInfo& info,
                                        const std::vector<std::string>& addresses) {
  const absl::StatusOr<BlobInfo> here = store_->Stat(name);
  if (here.ok() && *here == info) return store_->PlaceOf(name);
  absl::Status failure =
      absl::UnavailableError(absl::StrCat(ToString(name), ": no store is known that has it"));
  for (const std::string& address : addresses) {
    WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<BlobUpload> upload,
                          store_->BeginUpload(name, info));
    absl::Status status = fetcher_->Fetch(address, name, info, upload.get());
    if (status.ok()) {
      WEFT_RETURN_IF_ERROR(upload->Publish());
      return store_->PlaceOf(name);
    }
    failure = Annotate(status, absl::StrCat("from ", address));
    // What the next place cannot mend.
    if (absl::IsAborted(status) || absl::IsResourceExhausted(status)) break;
  }
  return failure;
}

absl::StatusOr<VersionInfo> StoreOrders::Store(const StoreManifest& order) {
  const ShardName name = {order.version, 0};
  const absl::string_view manifest = order.manifest;
  const auto bytes = static_cast<int64_t>(manifest.size());
  std::vector<absl::string_view> segments;
  std::vector<uint64_t> checksums;
  for (int64_t i = 0; i < NumSegments(bytes); ++i) {
    segments.push_back(manifest.substr(static_cast<size_t>(i * kSegmentBytes),
                                       static_cast<size_t>(SegmentBytes(bytes, i))));
    checksums.push_back(SegmentChecksum({segments.back()}));
  }
  const BlobInfo info = {bytes, BlobChecksum(bytes, checksums)};
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<BlobUpload> upload, store_->BeginUpload(name, info));
  for (size_t i = 0; i < segments.size(); ++i) {
    WEFT_RETURN_IF_ERROR(upload->Append(static_cast<int64_t>(i), checksums[i], {segments[i]}));
  }
  WEFT_RETURN_IF_ERROR(upload->Publish());
  WEFT_RETURN_IF_ERROR(store_->Persist(name));  // a manifest is for the time after a loss
  ShardInfo shard;
  shard.size_bytes = info.bytes;
  shard.xxh3 = info.checksum;
  shard.places = {store_->PlaceOf(name)};
  return VersionInfo{order.version, {shard}};
}

}  // namespace weft
