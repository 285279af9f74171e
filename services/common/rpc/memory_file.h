// A file that lies in this process' memory and has a path, for a library that wants one. What it
// holds is replaced at once. It stays until the process ends: who was given the path may read it at
// any time.
//
// Not thread-safe; others may read the path meanwhile, and see the old contents or the new.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace weft {

class MemoryFile {
 public:
  MemoryFile() = default;
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Errors: ResourceExhausted, Internal: no memory, or no descriptor.
  absl::Status Replace(absl::string_view contents);
  // Of the process alone; good once something was put in.
  std::string path() const;

 private:
  int fd_ = -1;
};

}  // namespace weft
