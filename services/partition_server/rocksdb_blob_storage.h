// RocksDbBlobStorage keeps blobs in an embedded RocksDB: segments as values.
//
// A blob is one sorted table file: its segments, and behind them a record with length and
// checksums. It is written aside, synced, and published by ingesting the file: one synced record in
// RocksDB's manifest, no log, no memtable, no compaction. So each byte is written once, and a
// removed blob's bytes are free at once, for its file goes as a whole.
//
//   FOLDER/db/       RocksDB
//   FOLDER/staging/  tables being written; emptied when the folder is opened
//
//   key     := entity type, partition: u32; token: u64; shard, segment: u32    (big-endian)
//   value   := bytes of the segment
//            | record, where segment = 0xFFFFFFFF
//   record  := format: u32 = 1; bytes, checksum: u64; a checksum per segment: u64 (little-endian)
//
// Errors: FailedPrecondition (another process has the folder; a newer format). Read errors of
// RocksDB that mean damage are DataLoss. Thread-safety: as BlobStorage.
#pragma once

#include <memory>
#include <string>

#include "services/partition_server/blob_storage.h"

namespace weft {

class RocksDbBlobStorage : public BlobStorage {
 public:
  // Makes the folder when it is missing.
  static absl::StatusOr<std::unique_ptr<RocksDbBlobStorage>> Open(const std::string& folder);
  ~RocksDbBlobStorage() override;

  absl::StatusOr<std::vector<RecoveredBlob>> Recover() override;
  absl::StatusOr<std::unique_ptr<StagedBlob>> Stage(const ShardName& name,
                                                    const BlobInfo& info) override;
  absl::Status Remove(absl::Span<const ShardName> names) override;
  bool durable() const override { return true; }
  int64_t FreeBytes() const override;
  void WriteMetrics(MetricsPage* page) const override;

 private:
  struct Database;
  class Blob;
  class Staged;

  explicit RocksDbBlobStorage(std::shared_ptr<Database> database);

  const std::shared_ptr<Database> database_;
};

}  // namespace weft
