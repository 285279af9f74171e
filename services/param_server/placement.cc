#include "services/param_server/placement.h"

#include <xxhash.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace weft {

int64_t ParamPlacement::RowsPerBlock(const SharedTensor& tensor) {
  return std::max<int64_t>(1, kBlockFloats / tensor.cols);
}

int ParamPlacement::ServerOfBlock(const SharedTensor& tensor, int64_t block) const {
  std::string key = tensor.name;
  key.push_back('\0');
  absl::StrAppend(&key, block);
  return static_cast<int>(XXH3_64bits(key.data(), key.size()) %
                          static_cast<uint64_t>(num_servers_));
}

std::vector<RowRange> ParamPlacement::RangesOf(const SharedLayout& layout, int server) const {
  std::vector<RowRange> ranges;
  for (uint32_t t = 0; t < layout.num_tensors(); ++t) {
    const SharedTensor& tensor = layout.tensor(t);
    const int64_t step = RowsPerBlock(tensor);
    for (int64_t first = 0; first < tensor.rows; first += step) {
      if (ServerOfBlock(tensor, first / step) != server) continue;
      const int64_t count = std::min(step, tensor.rows - first);
      RowRange* last = ranges.empty() ? nullptr : &ranges.back();
      if (last != nullptr && last->tensor == t && last->first + last->count == first) {
        last->count += count;
      } else {
        ranges.push_back({t, first, count});
      }
    }
  }
  return ranges;
}

}  // namespace weft
