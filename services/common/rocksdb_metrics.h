// The health of an embedded RocksDB, as it says itself. For the stores that adapt it.
#pragma once

#include "services/common/metrics.h"

namespace rocksdb {
class DB;
}  // namespace rocksdb

namespace weft {

// Thread-safety: any thread, while the database is open.
void WriteRocksDbMetrics(rocksdb::DB* db, MetricsPage* page);

}  // namespace weft
