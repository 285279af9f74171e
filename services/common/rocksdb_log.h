// What the databases do with the library's own log: nothing.
#pragma once

#include <rocksdb/env.h>

#include <cstdarg>
#include <memory>

namespace weft {

// RocksDB's log would be a file in the database's folder, and on a full disk the second line in it
// ends the process by an assertion (7.8, as Debian builds it), before the caller hears of the write
// that failed.
class NoRocksDbLog : public rocksdb::Logger {
 public:
  static std::shared_ptr<rocksdb::Logger> Make() { return std::make_shared<NoRocksDbLog>(); }

  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace weft
