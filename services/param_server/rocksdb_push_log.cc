#include "services/param_server/rocksdb_push_log.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "services/common/check.h"
#include "services/common/mutex.h"
#include "services/common/rocksdb_log.h"
#include "services/common/rocksdb_metrics.h"

namespace weft {
namespace {

// A write buffer holds some rounds of all rows of a usual model: most rows are written over and
// over, and only their last values ever reach a table file.
constexpr size_t kWriteBufferBytes = size_t{64} << 20;
constexpr uint64_t kMaxWalBytes = uint64_t{256} << 20;

rocksdb::Slice ToSlice(std::string_view s) { return {s.data(), s.size()}; }
std::string_view ToView(const rocksdb::Slice& s) { return {s.data(), s.size()}; }

absl::Status ToStatus(const rocksdb::Status& status, const std::string& what) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = absl::StrCat(what, ": ", status.ToString());
  if (status.IsCorruption()) return absl::DataLossError(message);
  if (status.IsNoSpace()) return absl::ResourceExhaustedError(message);
  if (status.IsBusy() || status.IsTryAgain()) return absl::UnavailableError(message);
  return absl::InternalError(message);
}

// The first key after all that begin with `prefix`; empty: there is none.
std::string EndOf(std::string_view prefix) {
  std::string end(prefix);
  while (!end.empty() && static_cast<unsigned char>(end.back()) == 0xFF) end.pop_back();
  if (!end.empty()) ++end.back();
  return end;
}

}  // namespace

struct RocksDbPushLog::Impl {
  std::unique_ptr<rocksdb::DB> db;
  Mutex mu;
  absl::Status failed ABSL_GUARDED_BY(mu);

  absl::Status CheckAlive() {
    MutexLock lock(&mu);
    if (failed.ok()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("an earlier write failed (", failed.message(), ")"));
  }
  absl::Status Remember(absl::Status status) {
    MutexLock lock(&mu);
    if (!status.ok() && failed.ok()) failed = status;
    return status;
  }
};

absl::StatusOr<std::unique_ptr<RocksDbPushLog>> RocksDbPushLog::Open(const std::string& folder) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = kWriteBufferBytes;
  options.max_total_wal_size = kMaxWalBytes;
  options.compression = rocksdb::kNoCompression;  // floats do not shrink
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.track_and_verify_wals_in_manifest = true;
  options.info_log = NoRocksDbLog::Make();
  rocksdb::DB* db = nullptr;
  const rocksdb::Status opened = rocksdb::DB::Open(options, folder, &db);
  if (opened.IsIOError() && opened.ToString().find("lock") != std::string::npos) {
    return absl::UnavailableError(absl::StrCat(folder, " is in use: ", opened.ToString()));
  }
  if (!opened.ok()) return ToStatus(opened, absl::StrCat("cannot open ", folder));
  auto impl = std::make_unique<Impl>();
  impl->db.reset(db);
  return std::unique_ptr<RocksDbPushLog>(new RocksDbPushLog(std::move(impl)));
}

RocksDbPushLog::RocksDbPushLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RocksDbPushLog::~RocksDbPushLog() = default;

absl::Status RocksDbPushLog::Write(absl::Span<const Change> changes) {
  if (absl::Status alive = impl_->CheckAlive(); !alive.ok()) return alive;
  rocksdb::WriteBatch batch;
  rocksdb::Status status;
  for (const Change& change : changes) {
    status = change.remove ? batch.Delete(ToSlice(change.key))
                           : batch.Put(ToSlice(change.key), ToSlice(change.value));
    if (!status.ok()) break;
  }
  if (status.ok()) status = impl_->db->Write(rocksdb::WriteOptions(), &batch);
  return impl_->Remember(ToStatus(status, "cannot write"));
}

void RocksDbPushLog::WriteMetrics(MetricsPage* page) const {
  WriteRocksDbMetrics(impl_->db.get(), page);
}

absl::Status RocksDbPushLog::Sync() {
  if (absl::Status alive = impl_->CheckAlive(); !alive.ok()) return alive;
  return impl_->Remember(ToStatus(impl_->db->SyncWAL(), "cannot sync"));
}

absl::Status RocksDbPushLog::RemoveAll(std::string_view prefix) {
  if (absl::Status alive = impl_->CheckAlive(); !alive.ok()) return alive;
  const std::string end = EndOf(prefix);
  WEFT_CHECK(!end.empty());
  return impl_->Remember(
      ToStatus(impl_->db->DeleteRange(rocksdb::WriteOptions(), impl_->db->DefaultColumnFamily(),
                                      ToSlice(prefix), ToSlice(end)),
               "cannot remove"));
}

absl::Status RocksDbPushLog::Scan(std::string_view prefix, Visit visit) {
  const std::string end = EndOf(prefix);
  const rocksdb::Slice bound = ToSlice(end);
  rocksdb::ReadOptions options;
  if (!end.empty()) options.iterate_upper_bound = &bound;
  options.fill_cache = false;
  const std::unique_ptr<rocksdb::Iterator> it(impl_->db->NewIterator(options));
  for (it->Seek(ToSlice(prefix)); it->Valid(); it->Next()) {
    if (absl::Status visited = visit(ToView(it->key()), ToView(it->value())); !visited.ok()) {
      return visited;
    }
  }
  return ToStatus(it->status(), "cannot read");
}

}  // namespace weft
