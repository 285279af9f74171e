#include "services/param_server/row_table.h"

#include <algorithm>
#include <utility>

#include "services/common/check.h"

namespace weft {

RowTable::RowTable(SharedLayout layout, std::vector<RowRange> ranges)
    : layout_(std::move(layout)), ranges_(std::move(ranges)) {
  int64_t rows = 0;
  int64_t floats = 0;
  first_range_.assign(layout_.num_tensors() + 1, 0);
  for (const RowRange& range : ranges_) {
    placed_.push_back({range, rows, floats});
    const SharedTensor& tensor = layout_.tensor(range.tensor);
    rows += range.count;
    floats += std::min(tensor.RowOffset(range.first + range.count), tensor.size) -
              tensor.RowOffset(range.first);
    first_range_[range.tensor + 1] = placed_.size();
  }
  for (size_t t = 1; t < first_range_.size(); ++t) {
    first_range_[t] = std::max(first_range_[t], first_range_[t - 1]);
  }
  values_ = FloatBlock(1, floats);
  versions_.resize(static_cast<size_t>(rows));
  log_.reserve(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    versions_[static_cast<size_t>(i)] = ++counter_;
    log_.push_back({counter_, i});
  }
}

int64_t RowTable::Find(uint32_t tensor, int64_t row) const {
  if (tensor >= layout_.num_tensors() || row < 0) return -1;
  const auto begin = placed_.begin() + static_cast<ptrdiff_t>(first_range_[tensor]);
  const auto end = placed_.begin() + static_cast<ptrdiff_t>(first_range_[tensor + 1]);
  const auto after = std::upper_bound(
      begin, end, row, [](int64_t wanted, const Range& r) { return wanted < r.rows.first; });
  if (after == begin) return -1;
  const Range& range = *(after - 1);
  const int64_t at = row - range.rows.first;
  return at < range.rows.count ? range.first_index + at : -1;
}

const RowTable::Range& RowTable::RangeOf(int64_t index) const {
  WEFT_DCHECK(index >= 0 && index < num_rows());
  const auto after =
      std::upper_bound(placed_.begin(), placed_.end(), index,
                       [](int64_t wanted, const Range& r) { return wanted < r.first_index; });
  return *(after - 1);
}

RowTable::Name RowTable::NameOf(int64_t index) const {
  const Range& range = RangeOf(index);
  return {range.rows.tensor, range.rows.first + (index - range.first_index)};
}

std::span<const float> RowTable::values(int64_t index) const {
  const Range& range = RangeOf(index);
  const SharedTensor& tensor = layout_.tensor(range.rows.tensor);
  const int64_t row = range.rows.first + (index - range.first_index);
  const int64_t at = range.first_float + (index - range.first_index) * tensor.cols;
  return {values_.data() + at, static_cast<size_t>(tensor.RowFloats(row))};
}

std::span<float> RowTable::values(int64_t index) {
  const std::span<const float> row = std::as_const(*this).values(index);
  return {const_cast<float*>(row.data()), row.size()};
}

void RowTable::Touch(int64_t index) {
  versions_[static_cast<size_t>(index)] = ++counter_;
  log_.push_back({counter_, index});
  if (log_.size() < 2 * versions_.size() + 1024) return;
  std::erase_if(log_, [this](const Change& c) {
    return versions_[static_cast<size_t>(c.index)] != c.version;
  });
}

RowTable::Newer::Newer(const RowTable& table, uint64_t after) : table_(table) {
  const auto first = std::upper_bound(
      table.log_.begin(), table.log_.end(), after,
      [](uint64_t wanted, const Change& change) { return wanted < change.version; });
  at_ = static_cast<size_t>(first - table.log_.begin());
  SkipOld();
}

void RowTable::Newer::SkipOld() {
  while (!done() && table_.version(index()) != version()) ++at_;
}

}  // namespace weft
