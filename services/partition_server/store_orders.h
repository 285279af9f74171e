// StoreOrders does what the lock server orders a partition server to do, and says how it went.
//
// Every order may be given again and may be under way twice: each is idempotent. Orders take as
// long as the bytes that they move.
//
// Thread-safety: all methods may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/store_sync.h"
#include "services/partition_server/partition_store.h"

namespace weft {

// Brings a blob from another store.
class BlobFetcher {
 public:
  virtual ~BlobFetcher() = default;

  // Appends all segments of the blob at `address` to `upload`, which expects them; does not
  // publish. Errors: those of GetBlob (partition_service.proto) and of BlobUpload::Append.
  virtual absl::Status Fetch(const std::string& address, const ShardName& name,
                             const BlobInfo& info, BlobUpload* upload) = 0;
};

class StoreOrders {
 public:
  // All must outlive this object.
  StoreOrders(PartitionStore* store, BlobFetcher* fetcher) : store_(store), fetcher_(fetcher) {}

  // Carries out one order. `servers` tells the addresses of the places that it names.
  // The result's errors: those of the store; Unavailable, NotFound, DataLoss (no place could give
  // the shard); InvalidArgument (not an order for a partition server).
  OrderResult Execute(const NumberedOrder& order, const std::vector<ServerInfo>& servers);

  // Fetches a blob from the first of the addresses that can give it.
  absl::StatusOr<Place> Copy(const ShardName& name, const BlobInfo& info,
                             const std::vector<std::string>& addresses);

 private:
  absl::Status Persist(const PersistShards& order);
  absl::StatusOr<VersionInfo> CopyFromPlaces(const CopyShard& order,
                                             const std::vector<ServerInfo>& servers);
  absl::StatusOr<VersionInfo> Store(const StoreManifest& order);

  PartitionStore* const store_;
  BlobFetcher* const fetcher_;
};

}  // namespace weft
