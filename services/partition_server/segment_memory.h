// SegmentMemory is memory for segments: mapped apart from the heap, so that what is freed goes back
// at once; whole ones in huge pages where there are some, so that filling them costs few page
// faults.
//
// Some freed pieces are kept for the next upload: a small part of what is in use. Thread-safety:
// all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/mutex.h"

namespace weft {

class SegmentMemory {
 public:
  SegmentMemory() = default;
  ~SegmentMemory();
  SegmentMemory(const SegmentMemory&) = delete;
  SegmentMemory& operator=(const SegmentMemory&) = delete;

  // nullptr when there is none. `bytes` <= 4 MiB.
  char* Allocate(size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);
  // What Allocate gave for as many bytes.
  void Free(char* memory, size_t bytes) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  Mutex mu_;
  std::vector<char*> kept_ ABSL_GUARDED_BY(mu_);
  size_t in_use_ ABSL_GUARDED_BY(mu_) = 0;  // pieces
};

}  // namespace weft
