// BlobDisk is the simulated disk (or memory) of a partition server, and DiskStorage the BlobStorage
// on it. Published blobs stay when the server is killed; what is staged does not.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "services/partition_server/blob_storage.h"

namespace weft::simulation {

struct BlobDisk {
  struct Blob {
    BlobInfo info;
    std::vector<uint64_t> checksums;
    std::vector<std::string> segments;
    bool synced = true;
    bool damaged = false;      // not what was written any more
    bool record_lost = false;  // nor does anybody know what it was
  };

  int64_t capacity = int64_t{1} << 30;
  int64_t used = 0;  // staged bytes, too
  bool durable = true;
  bool fails = false;                // the next publication fails, done or not
  bool answers_before_sync = false;  // a weakened rule
  std::map<ShardName, std::shared_ptr<Blob>> blobs;

  // The machine stops: what was not synced is gone.
  void Crash();
  // null: not there.
  const Blob* Find(const ShardName& name) const;
  // Damages one of the blobs, as `chance` decides, in a byte or its record. None: there is none.
  std::optional<ShardName> Damage(uint32_t chance);
};

class DiskStorage : public BlobStorage {
 public:
  explicit DiskStorage(BlobDisk* disk) : disk_(disk) {}

  absl::StatusOr<std::vector<RecoveredBlob>> Recover() override;
  absl::StatusOr<std::unique_ptr<StagedBlob>> Stage(const ShardName& name,
                                                    const BlobInfo& info) override;
  absl::Status Remove(absl::Span<const ShardName> names) override;
  bool durable() const override { return disk_->durable; }
  int64_t FreeBytes() const override { return disk_->capacity - disk_->used; }

 private:
  BlobDisk* const disk_;
};

}  // namespace weft::simulation
