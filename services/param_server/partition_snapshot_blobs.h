// PartitionSnapshotBlobs keeps snapshots of parameters at partition servers, each as one shard of
// entity type -1 (store_sync.h).
//
// Memory: a snapshot is in memory once more while it is stored or read.
// Thread-safety: may be called from any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"
#include "services/param_server/param_orders.h"
#include "services/partition_server/blob_transfer.h"

namespace weft {

class PartitionSnapshotBlobs : public SnapshotBlobs {
 public:
  // `transfer` must outlive this object.
  explicit PartitionSnapshotBlobs(BlobTransfer* transfer) : transfer_(transfer) {}

  // The servers as the lock server knows them now.
  void SetServers(ServerList servers) ABSL_LOCKS_EXCLUDED(mu_);

  absl::StatusOr<VersionInfo> Store(const StoreSnapshot& order,
                                    const ParamSnapshot& snapshot) override;
  absl::StatusOr<ParamSnapshot> Read(const VersionInfo& version) override;

 private:
  // Unavailable when no such server is registered.
  absl::StatusOr<std::string> AddressOf(StoreId store) const ABSL_LOCKS_EXCLUDED(mu_);

  BlobTransfer* const transfer_;
  mutable Mutex mu_;
  ServerList servers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weft
