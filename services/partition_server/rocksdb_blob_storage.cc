#include "services/partition_server/rocksdb_blob_storage.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <sys/statvfs.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/common/file_util.h"
#include "services/common/rocksdb_log.h"
#include "services/common/rocksdb_metrics.h"
#include "services/common/status_macros.h"

namespace weft {
namespace {

constexpr uint32_t kRecordSegment = 0xFFFFFFFF;
constexpr uint32_t kFormat = 1;
constexpr size_t kNameBytes = 20;
constexpr size_t kKeyBytes = kNameBytes + 4;

absl::Status ToStatus(const rocksdb::Status& status, absl::string_view what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  if (status.IsNotFound()) return absl::NotFoundError(message);
  // A table file that is damaged, cut short or gone.
  if (status.IsCorruption() || status.IsPathNotFound()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsBusy() || status.IsTryAgain()) return absl::UnavailableError(message);
  return absl::InternalError(message);
}

template <typename T>
void PutBigEndian(T value, std::string* out) {
  for (int shift = 8 * (static_cast<int>(sizeof value) - 1); shift >= 0; shift -= 8) {
    out->push_back(static_cast<char>(value >> shift));
  }
}

template <typename T>
T TakeBigEndian(absl::string_view* in) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value = static_cast<T>(value << 8) | static_cast<uint8_t>((*in)[i]);
  }
  in->remove_prefix(sizeof value);
  return value;
}

template <typename T>
void PutWord(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian machines only
}

template <typename T>
bool TakeWord(absl::string_view* in, T* value) {
  if (in->size() < sizeof *value) return false;
  std::memcpy(value, in->data(), sizeof *value);
  in->remove_prefix(sizeof *value);
  return true;
}

std::string Key(const ShardName& name, uint32_t segment) {
  std::string key;
  key.reserve(kKeyBytes);
  PutBigEndian(static_cast<uint32_t>(name.version.key.entity_type), &key);
  PutBigEndian(static_cast<uint32_t>(name.version.key.partition), &key);
  PutBigEndian(name.version.token, &key);
  PutBigEndian(name.shard, &key);
  PutBigEndian(segment, &key);
  return key;
}

bool ParseKey(absl::string_view key, ShardName* name, uint32_t* segment) {
  if (key.size() != kKeyBytes) return false;
  name->version.key.entity_type = static_cast<EntityTypeId>(TakeBigEndian<uint32_t>(&key));
  name->version.key.partition = static_cast<PartitionId>(TakeBigEndian<uint32_t>(&key));
  name->version.token = TakeBigEndian<uint64_t>(&key);
  name->shard = TakeBigEndian<uint32_t>(&key);
  *segment = TakeBigEndian<uint32_t>(&key);
  return true;
}

std::string Record(const BlobInfo& info, absl::Span<const uint64_t> checksums) {
  std::string record;
  PutWord(kFormat, &record);
  PutWord(info.bytes, &record);
  PutWord(info.checksum, &record);
  for (const uint64_t checksum : checksums) PutWord(checksum, &record);
  return record;
}

absl::Status ParseRecord(absl::string_view record, BlobInfo* info,
                         std::vector<uint64_t>* checksums) {
  uint32_t format = 0;
  if (!TakeWord(&record, &format)) return absl::DataLossError("its record is cut short");
  if (format != kFormat) {
    return absl::FailedPreconditionError(
        absl::StrCat("has format ", format, "; this program knows ", kFormat));
  }
  if (!TakeWord(&record, &info->bytes) || !TakeWord(&record, &info->checksum) || info->bytes < 0 ||
      info->bytes > kMaxBlobBytes ||
      record.size() != static_cast<size_t>(NumSegments(info->bytes)) * sizeof(uint64_t)) {
    return absl::DataLossError("its record is damaged");
  }
  checksums->resize(record.size() / sizeof(uint64_t));
  if (!record.empty()) std::memcpy(checksums->data(), record.data(), record.size());
  if (BlobChecksum(info->bytes, *checksums) != info->checksum) {
    return absl::DataLossError("its record is damaged");
  }
  return absl::OkStatus();
}

rocksdb::Options MakeOptions() {
  rocksdb::BlockBasedTableOptions table;
  table.no_block_cache = true;  // segments are read once; the kernel caches the files
  table.checksum = rocksdb::kXXH3;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.compression = rocksdb::kNoCompression;
  options.disable_auto_compactions = true;  // a file is a blob; nothing is ever put
  options.write_buffer_size = size_t{1} << 20;
  options.max_open_files = 256;
  // One damaged table is one damaged blob, found when it is read, and no reason not to open.
  options.paranoid_checks = false;
  options.skip_checking_sst_file_sizes_on_db_open = true;
  options.max_background_jobs = 1;
  options.bytes_per_sync = uint64_t{8} << 20;  // so that syncing does not begin at the end
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.info_log = NoRocksDbLog::Make();
  return options;
}

rocksdb::ReadOptions MakeReadOptions() {
  rocksdb::ReadOptions options;
  options.fill_cache = false;
  options.verify_checksums = true;
  return options;
}

}  // namespace

struct RocksDbBlobStorage::Database {
  std::string folder;
  std::string staging;
  rocksdb::Options options;
  std::unique_ptr<rocksdb::DB> db;
  std::atomic<uint64_t> next_staged = 0;

  // Drops the tables that cannot be read. RocksDB looks into the neighbours of a new table, and
  // takes none beside a damaged one.
  absl::Status DropDamaged() {
    std::vector<rocksdb::LiveFileMetaData> files;
    db->GetLiveFilesMetaData(&files);
    for (const rocksdb::LiveFileMetaData& file : files) {
      bool readable = true;
      for (const std::string* key : {&file.smallestkey, &file.largestkey}) {
        rocksdb::PinnableSlice value;
        readable =
            readable && db->Get(MakeReadOptions(), db->DefaultColumnFamily(), *key, &value).ok();
      }
      if (readable) continue;
      const rocksdb::Slice first = file.smallestkey;
      const rocksdb::Slice last = file.largestkey;
      const rocksdb::RangePtr range(&first, &last);
      WEFT_RETURN_IF_ERROR(ToStatus(
          rocksdb::DeleteFilesInRanges(db.get(), db->DefaultColumnFamily(), &range, 1, true),
          "cannot remove a damaged table"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<SegmentBuffer> Get(const ShardName& name, uint32_t segment) const {
    auto value = std::make_shared<rocksdb::PinnableSlice>();
    WEFT_RETURN_IF_ERROR(ToStatus(
        db->Get(MakeReadOptions(), db->DefaultColumnFamily(), Key(name, segment), value.get()),
        absl::StrCat("segment ", segment)));
    return SegmentBuffer{{value->data(), value->size()}, value};
  }
};

class RocksDbBlobStorage::Blob : public StoredBlob {
 public:
  Blob(std::shared_ptr<const Database> database, ShardName name, BlobInfo info,
       std::vector<uint64_t> checksums)
      : StoredBlob(name, info, std::move(checksums)), database_(std::move(database)) {}

  absl::StatusOr<SegmentBuffer> Read(int64_t segment) const override {
    return database_->Get(name, static_cast<uint32_t>(segment));
  }

 private:
  const std::shared_ptr<const Database> database_;
};

class RocksDbBlobStorage::Staged : public StagedBlob {
 public:
  Staged(std::shared_ptr<Database> database, const ShardName& name, const BlobInfo& info)
      : database_(std::move(database)),
        name_(name),
        info_(info),
        path_(absl::StrCat(database_->staging, "/", database_->next_staged++, ".sst")),
        writer_(new rocksdb::SstFileWriter(rocksdb::EnvOptions(database_->options),
                                           database_->options)) {}

  ~Staged() override {
    writer_.reset();
    std::error_code ignored;  // an ingested file has its own name in the database
    std::filesystem::remove(path_, ignored);
  }

  absl::Status Begin() { return ToStatus(writer_->Open(path_), path_); }

  absl::StatusOr<uint64_t> Append(absl::Span<const absl::string_view> pieces) override {
    size_t bytes = 0;
    for (const absl::string_view piece : pieces) bytes += piece.size();
    if (joined_.size() < bytes) joined_.resize(bytes);
    CopyingChecksum checksum;
    size_t done = 0;
    for (const absl::string_view piece : pieces) {
      checksum.Copy(piece.data(), piece.size(), joined_.data() + done);
      done += piece.size();
    }
    WEFT_RETURN_IF_ERROR(ToStatus(
        writer_->Put(Key(name_, next_segment_++), rocksdb::Slice(joined_.data(), bytes)), path_));
    return checksum.Get();
  }

  absl::Status Seal(absl::Span<const uint64_t> checksums) override {
    checksums_.assign(checksums.begin(), checksums.end());
    WEFT_RETURN_IF_ERROR(
        ToStatus(writer_->Put(Key(name_, kRecordSegment), Record(info_, checksums_)), path_));
    joined_ = std::string();
    return ToStatus(writer_->Finish(), path_);  // syncs
  }

  absl::StatusOr<std::shared_ptr<const StoredBlob>> Publish() override {
    rocksdb::IngestExternalFileOptions options;
    options.move_files = true;  // by a hard link
    options.failed_move_fall_back_to_copy = false;
    options.write_global_seqno = false;
    options.allow_blocking_flush = false;
    rocksdb::Status ingested = database_->db->IngestExternalFile({path_}, options);
    if (ingested.IsCorruption()) {
      WEFT_RETURN_IF_ERROR(database_->DropDamaged());
      ingested = database_->db->IngestExternalFile({path_}, options);
    }
    WEFT_RETURN_IF_ERROR(ToStatus(ingested, "cannot publish"));
    return std::make_shared<const Blob>(database_, name_, info_, std::move(checksums_));
  }

 private:
  const std::shared_ptr<Database> database_;
  const ShardName name_;
  const BlobInfo info_;
  const std::string path_;
  std::unique_ptr<rocksdb::SstFileWriter> writer_;
  uint32_t next_segment_ = 0;
  std::string joined_;
  std::vector<uint64_t> checksums_;
};

absl::StatusOr<std::unique_ptr<RocksDbBlobStorage>> RocksDbBlobStorage::Open(
    const std::string& folder) {
  auto database = std::make_shared<Database>();
  database->folder = folder;
  database->staging = folder + "/staging";
  database->options = MakeOptions();
  WEFT_RETURN_IF_ERROR(MakeDirectories(folder));
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(database->options, folder + "/db", &db);
  if (!opened.ok() && absl::StrContains(opened.ToString(), "lock")) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, ": another process uses it (", opened.ToString(), ")"));
  }
  WEFT_RETURN_IF_ERROR(ToStatus(opened, absl::StrCat("cannot open ", folder, "/db")));
  database->db.reset(db);
  // Only the holder of the database's lock may do this.
  std::error_code error;
  std::filesystem::remove_all(database->staging, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("cannot empty ", database->staging));
  WEFT_RETURN_IF_ERROR(MakeDirectories(database->staging));
  return std::unique_ptr<RocksDbBlobStorage>(new RocksDbBlobStorage(std::move(database)));
}

RocksDbBlobStorage::RocksDbBlobStorage(std::shared_ptr<Database> database)
    : database_(std::move(database)) {}

RocksDbBlobStorage::~RocksDbBlobStorage() = default;

absl::StatusOr<std::vector<RecoveredBlob>> RocksDbBlobStorage::Recover() {
  std::vector<rocksdb::LiveFileMetaData> files;
  database_->db->GetLiveFilesMetaData(&files);
  std::vector<RecoveredBlob> blobs;
  for (const rocksdb::LiveFileMetaData& file : files) {
    ShardName name;
    uint32_t segment = 0;
    if (!ParseKey(file.largestkey, &name, &segment) || segment != kRecordSegment) {
      return absl::DataLossError(absl::StrCat(database_->folder, "/db", file.name, ": is no blob"));
    }
    BlobInfo info;
    std::vector<uint64_t> checksums;
    absl::StatusOr<SegmentBuffer> record = database_->Get(name, kRecordSegment);
    absl::Status status = record.status();
    if (status.ok()) status = ParseRecord(record->bytes, &info, &checksums);
    const bool damaged = absl::IsDataLoss(status);
    if (damaged) {
      info = BlobInfo();
      checksums.clear();
    } else {
      WEFT_RETURN_IF_ERROR(Annotate(status, ToString(name)));
    }
    blobs.push_back(
        {std::make_shared<const Blob>(database_, name, info, std::move(checksums)), damaged});
  }
  return blobs;
}

absl::StatusOr<std::unique_ptr<StagedBlob>> RocksDbBlobStorage::Stage(const ShardName& name,
                                                                      const BlobInfo& info) {
  auto staged = std::make_unique<Staged>(database_, name, info);
  WEFT_RETURN_IF_ERROR(staged->Begin());
  return staged;
}

absl::Status RocksDbBlobStorage::Remove(absl::Span<const ShardName> names) {
  std::vector<std::pair<std::string, std::string>> keys;
  keys.reserve(names.size());
  for (const ShardName& name : names) keys.emplace_back(Key(name, 0), Key(name, kRecordSegment));
  std::vector<rocksdb::Slice> slices;
  slices.reserve(2 * keys.size());
  std::vector<rocksdb::RangePtr> ranges;
  for (const auto& [first, last] : keys) {
    slices.emplace_back(first);
    slices.emplace_back(last);
    ranges.emplace_back(&slices[slices.size() - 2], &slices.back());
  }
  WEFT_RETURN_IF_ERROR(ToStatus(
      rocksdb::DeleteFilesInRanges(database_->db.get(), database_->db->DefaultColumnFamily(),
                                   ranges.data(), ranges.size(), /*include_end=*/true),
      "cannot remove"));
  return absl::OkStatus();
}

int64_t RocksDbBlobStorage::FreeBytes() const {
  struct statvfs disk;
  if (statvfs(database_->folder.c_str(), &disk) != 0) return 0;
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

void RocksDbBlobStorage::WriteMetrics(MetricsPage* page) const {
  WriteRocksDbMetrics(database_->db.get(), page);
}

}  // namespace weft
