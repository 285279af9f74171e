// RowTable is one server's share of the rows in memory: their floats, a version each, and the order
// in which they changed last.
//
// A version is the value of a counter that grows by one with every change of a row, so "all rows
// newer than c, in version order" can be cut anywhere and continued from there.
//
// Thread-safety: not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/float_block.h"
#include "services/param_server/placement.h"
#include "services/param_server/shared_layout.h"

namespace weft {

class RowTable {
 public:
  struct Name {
    uint32_t tensor = 0;
    int64_t row = 0;
  };

  RowTable() = default;
  // All floats 0; rows have versions 1, 2, ... in the order of `ranges`.
  RowTable(SharedLayout layout, std::vector<RowRange> ranges);

  const SharedLayout& layout() const { return layout_; }
  const std::vector<RowRange>& ranges() const { return ranges_; }
  int64_t num_rows() const { return static_cast<int64_t>(versions_.size()); }
  int64_t num_floats() const { return values_.size(); }

  // The rows are numbered 0, 1, ... in the order of the ranges; < 0: this server has it not.
  int64_t Find(uint32_t tensor, int64_t row) const;
  Name NameOf(int64_t index) const;
  std::span<float> values(int64_t index);
  std::span<const float> values(int64_t index) const;
  std::span<const float> all() const { return values_.span(); }

  uint64_t counter() const { return counter_; }
  uint64_t version(int64_t index) const { return versions_[static_cast<size_t>(index)]; }
  // Gives the row the next version.
  void Touch(int64_t index);

  // The rows with a version above `after`, in version order.
  class Newer {
   public:
    Newer(const RowTable& table, uint64_t after);
    bool done() const { return at_ == table_.log_.size(); }
    int64_t index() const { return table_.log_[at_].index; }
    uint64_t version() const { return table_.log_[at_].version; }
    void Next() {
      ++at_;
      SkipOld();
    }

   private:
    void SkipOld();
    const RowTable& table_;
    size_t at_ = 0;
  };

 private:
  struct Range {
    RowRange rows;
    int64_t first_index = 0;
    int64_t first_float = 0;
  };
  struct Change {
    uint64_t version = 0;
    int64_t index = 0;
  };

  const Range& RangeOf(int64_t index) const;

  SharedLayout layout_;
  std::vector<RowRange> ranges_;
  std::vector<Range> placed_;        // as ranges_
  std::vector<size_t> first_range_;  // [tensors + 1] into placed_
  FloatBlock values_;                // [1, floats]
  std::vector<uint64_t> versions_;   // by index
  std::vector<Change> log_;          // ascending; a row's last change is its version
  uint64_t counter_ = 0;
};

}  // namespace weft
