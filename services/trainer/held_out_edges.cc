#include "services/trainer/held_out_edges.h"

#include <algorithm>

#include "services/common/check.h"
#include "services/common/random.h"

namespace weft {

HeldOutEdges::HeldOutEdges(uint64_t seed, int edge_path, Bucket bucket, int64_t num_edges,
                           double fraction)
    : num_edges_(num_edges),
      count_(static_cast<int64_t>(static_cast<double>(num_edges) * fraction)) {
  WEFT_CHECK(num_edges >= 0 && fraction >= 0 && fraction < 1);
  const uint64_t where = (static_cast<uint64_t>(static_cast<uint32_t>(bucket.lhs)) << 32) |
                         static_cast<uint32_t>(bucket.rhs);
  RandomStream random(seed, RandomUse::kHeldOutEdges, where, static_cast<uint64_t>(edge_path));
  key_ = {random(), random()};
}

int64_t HeldOutEdges::StratumBegin(int64_t i) const {
  // num_edges * i / count; the quotient and the remainder apart, so that no product overflows.
  return i * (num_edges_ / count_) + i * (num_edges_ % count_) / count_;
}

std::vector<int64_t> HeldOutEdges::InRange(EdgeRange range) const {
  std::vector<int64_t> positions;
  if (count_ == 0 || range.size() <= 0) return positions;
  const double share = static_cast<double>(count_) / static_cast<double>(num_edges_);
  positions.reserve(static_cast<size_t>(share * static_cast<double>(range.size())) + 2);
  // The stratum that holds range.begin: the last one that begins at or before it.
  auto i = std::min(static_cast<int64_t>(share * static_cast<double>(range.begin)), count_ - 1);
  while (i + 1 < count_ && StratumBegin(i + 1) <= range.begin) ++i;
  while (i > 0 && StratumBegin(i) > range.begin) --i;
  for (; i < count_; ++i) {
    const int64_t begin = StratumBegin(i);
    if (begin >= range.end) break;
    const auto drawn =
        Philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, key_);
    const uint64_t bits = (uint64_t{drawn[0]} << 32) | drawn[1];
    const auto size = static_cast<uint64_t>(StratumBegin(i + 1) - begin);
    const int64_t position = begin + static_cast<int64_t>(bits % size);  // bias below size / 2^64
    if (position >= range.begin && position < range.end) positions.push_back(position);
  }
  return positions;
}

}  // namespace weft
