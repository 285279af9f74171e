#include "services/common/rocksdb_metrics.h"

#include <rocksdb/db.h>

#include <cstdint>
#include <string>

namespace weft {
namespace {

double Property(rocksdb::DB* db, const std::string& name) {
  uint64_t value = 0;
  return db->GetAggregatedIntProperty(name, &value) ? static_cast<double>(value) : 0;
}

// Of the whole database, not of a column family.
double GlobalProperty(rocksdb::DB* db, const std::string& name) {
  uint64_t value = 0;
  return db->GetIntProperty(name, &value) ? static_cast<double>(value) : 0;
}

}  // namespace

void WriteRocksDbMetrics(rocksdb::DB* db, MetricsPage* page) {
  using P = rocksdb::DB::Properties;
  page->AddGauge("weft_rocksdb_keys", "Keys, as RocksDB estimates.", {},
                 Property(db, P::kEstimateNumKeys));
  page->AddGauge("weft_rocksdb_live_data_bytes",
                 "Bytes of data that are not overwritten or deleted, as RocksDB estimates.", {},
                 Property(db, P::kEstimateLiveDataSize));
  page->AddGauge("weft_rocksdb_table_bytes", "Bytes of RocksDB's table files.", {},
                 Property(db, P::kTotalSstFilesSize));
  page->AddGauge("weft_rocksdb_memtable_bytes", "Bytes of RocksDB's memtables.", {},
                 Property(db, P::kCurSizeAllMemTables));
  page->AddGauge("weft_rocksdb_pending_compaction_bytes",
                 "Bytes that compaction has yet to rewrite, as RocksDB estimates.", {},
                 Property(db, P::kEstimatePendingCompactionBytes));
  page->AddGauge("weft_rocksdb_running_compactions", "Compactions under way.", {},
                 GlobalProperty(db, P::kNumRunningCompactions));
  page->AddGauge("weft_rocksdb_running_flushes", "Flushes under way.", {},
                 GlobalProperty(db, P::kNumRunningFlushes));
  page->AddGauge("weft_rocksdb_write_stopped", "1 when RocksDB has stopped all writes.", {},
                 GlobalProperty(db, P::kIsWriteStopped));
  page->AddCounter("weft_rocksdb_background_errors_total", "Background errors of RocksDB.", {},
                   GlobalProperty(db, P::kBackgroundErrors));
}

}  // namespace weft
