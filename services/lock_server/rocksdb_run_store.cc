#include "services/lock_server/rocksdb_run_store.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/rocksdb_log.h"
#include "services/common/rocksdb_metrics.h"
#include "services/common/status_macros.h"
#include "services/lock_server/run_codec.h"

namespace weft {
namespace {

constexpr char kPrefix = 'r';

std::string Key(uint64_t number) {
  std::string key(1, kPrefix);
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(number >> shift));
  return key;
}

absl::StatusOr<uint64_t> NumberOf(const rocksdb::Slice& key) {
  if (key.size() != 9 || key[0] != kPrefix) return absl::DataLossError("holds a foreign key");
  uint64_t number = 0;
  for (size_t i = 1; i < 9; ++i) number = (number << 8) | static_cast<uint8_t>(key[i]);
  return number;
}

absl::Status FromRocksDb(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsCorruption()) return absl::DataLossError(status.ToString());
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(status.ToString());
  return absl::InternalError(status.ToString());
}

}  // namespace

struct RocksDbRunStore::Impl {
  std::string path;
  std::unique_ptr<rocksdb::DB> db;
  rocksdb::WriteBatch batch;
  uint64_t first = 0;  // number of the state
  uint64_t next = 0;
  bool broken = false;

  absl::Status Put(std::string record) {
    if (broken) {
      return absl::InternalError(absl::StrCat(
          path, ": an earlier write failed; what is on disk is unknown until restart"));
    }
    return FromRocksDb(batch.Put(Key(next++), record));
  }
};

absl::StatusOr<std::unique_ptr<RocksDbRunStore>> RocksDbRunStore::Open(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  // Only what was being written when the process was killed may be missing.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  options.write_buffer_size = size_t{32} << 20;
  options.info_log = NoRocksDbLog::Make();
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, path, &db);
  if (!status.ok() && status.ToString().find("lock") != std::string::npos) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": another process uses it (", status.ToString(), ")"));
  }
  WEFT_RETURN_IF_ERROR(Annotate(FromRocksDb(status), path));
  impl->db.reset(db);
  return std::unique_ptr<RocksDbRunStore>(new RocksDbRunStore(std::move(impl)));
}

RocksDbRunStore::RocksDbRunStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RocksDbRunStore::~RocksDbRunStore() {
  // After a failed write the library stops the process when it is closed, so it is not.
  if (impl_->broken) impl_->db.release();
}

absl::StatusOr<std::optional<RunState>> RocksDbRunStore::Load() {
  std::optional<RunState> state;
  const std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator(rocksdb::ReadOptions()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    absl::StatusOr<uint64_t> number = NumberOf(it->key());
    if (!number.ok()) return Annotate(number.status(), impl_->path);
    const std::string what = absl::StrCat(impl_->path, ": record ", *number);
    if (state.has_value() && *number != impl_->next) {
      return absl::DataLossError(absl::StrCat(what, " follows ", impl_->next - 1));
    }
    absl::StatusOr<RunRecord> record =
        DecodeRecord(absl::string_view(it->value().data(), it->value().size()));
    if (!record.ok()) return Annotate(record.status(), what);
    if (auto* whole = std::get_if<RunState>(&*record)) {
      state = std::move(*whole);
      impl_->first = *number;
    } else if (state.has_value()) {
      ApplyChange(std::get<RunChange>(*record), &*state);
    } else {
      return absl::DataLossError(absl::StrCat(what, " is a change of no state"));
    }
    impl_->next = *number + 1;
  }
  WEFT_RETURN_IF_ERROR(Annotate(FromRocksDb(it->status()), impl_->path));
  return state;
}

void RocksDbRunStore::WriteMetrics(MetricsPage* page) const {
  WriteRocksDbMetrics(impl_->db.get(), page);
}

absl::Status RocksDbRunStore::Append(const RunChange& change) {
  return impl_->Put(EncodeChange(change));
}

absl::Status RocksDbRunStore::Replace(const RunState& state) {
  const uint64_t number = impl_->next;
  WEFT_RETURN_IF_ERROR(impl_->Put(EncodeState(state)));
  if (number > impl_->first) {
    WEFT_RETURN_IF_ERROR(FromRocksDb(impl_->batch.DeleteRange(Key(impl_->first), Key(number))));
  }
  impl_->first = number;
  return absl::OkStatus();
}

absl::Status RocksDbRunStore::Sync() {
  if (impl_->broken) return impl_->Put("");
  if (impl_->batch.Count() == 0) return absl::OkStatus();
  rocksdb::WriteOptions options;
  options.sync = true;
  const absl::Status status = FromRocksDb(impl_->db->Write(options, &impl_->batch));
  impl_->batch.Clear();
  impl_->broken = !status.ok();
  return Annotate(status, impl_->path);
}

}  // namespace weft
