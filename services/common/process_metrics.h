// What a process says of itself: its name and version, processor time, memory, files, disk.
#pragma once

#include <string>

#include "services/common/metrics.h"

namespace weft {

class ProcessMetrics {
 public:
  // `data_dir`: whose file system is looked at; empty: none.
  ProcessMetrics(std::string program, std::string data_dir);

  // Thread-safety: any thread.
  void Write(MetricsPage* page) const;

 private:
  void WriteDisk(MetricsPage* page) const;

  const std::string program_;
  const std::string data_dir_;
  const double start_seconds_;  // since 1970
};

}  // namespace weft
