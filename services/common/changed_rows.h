// ChangedRows marks the rows of a shared table that workers have written since they were last
// looked at, one byte a row: a big table need not be compared as a whole to find what changed.
//
// A writer writes the row first and marks it after; who takes a mark takes it first and reads the
// row after. So a write that the reader has missed leaves a mark behind.
// Thread-safety: marks may be set and taken by any number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace weft {

using ChangedRows = std::vector<uint8_t>;  // empty: changes are not tracked

inline void MarkChanged(uint8_t* marks, int64_t row) {
  // Always a store: a mark seen set may just be being taken.
  std::atomic_ref(marks[row]).store(1, std::memory_order_release);
}

// Takes all marks, and calls `use` with each row that had one.
template <typename Use>
void TakeChanged(ChangedRows* marks, Use use) {
  // Eight marks are looked at together: most tables change in few places.
  using Word = uint64_t __attribute__((may_alias));
  const auto size = static_cast<int64_t>(marks->size());
  uint8_t* data = marks->data();
  for (int64_t first = 0; first < size; first += 8) {
    if (first + 8 <= size &&
        __atomic_load_n(reinterpret_cast<const Word*>(data + first), __ATOMIC_RELAXED) == 0) {
      continue;
    }
    const int64_t end = first + 8 < size ? first + 8 : size;
    for (int64_t row = first; row < end; ++row) {
      std::atomic_ref<uint8_t> mark(data[row]);
      if (mark.load(std::memory_order_relaxed) == 0) continue;
      mark.exchange(0, std::memory_order_seq_cst);
      use(row);
    }
  }
}

}  // namespace weft
