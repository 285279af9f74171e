#include "services/lock_server/bucket_matrix.h"

#include <algorithm>
#include <utility>

#include "services/common/check.h"

namespace weft {
namespace {

// Up to so many candidates are compared one by one.
constexpr int kFewCandidates = 32;

BitSet Without(BitSet set, const BitSet& other) {
  set.Subtract(other);
  return set;
}

}  // namespace

BucketMatrix::BucketMatrix(int num_lhs, int num_rhs)
    : num_rhs_(num_rhs),
      place_(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs)),
      lines_{std::vector<Line>(static_cast<size_t>(num_lhs), Line(num_rhs)),
             std::vector<Line>(static_cast<size_t>(num_rhs), Line(num_lhs))},
      diagonal_(std::min(num_lhs, num_rhs)) {
  WEFT_CHECK(num_lhs >= 1 && num_rhs >= 1);
}

void BucketMatrix::Reset(absl::Span<const Bucket> order, absl::Span<const Bucket> done) {
  WEFT_CHECK(order.size() == place_.size());
  order_.assign(order.begin(), order.end());
  for (std::vector<Line>& lines : lines_) {
    for (Line& line : lines) line.order.clear();
  }
  for (size_t i = 0; i < order.size(); ++i) {
    place_[Index(order[i])] = static_cast<uint32_t>(i);
    for (const Side side : kSides) {
      line(side, order[i].partition(side)).order.push_back(order[i].partition(Opposite(side)));
    }
    SetFree(order[i], true);
  }
  for (const Bucket& b : done) SetFree(b, false);
}

void BucketMatrix::SetFree(Bucket b, bool free) {
  for (const Side side : kSides) {
    Line& own = line(side, b.partition(side));
    own.free.Set(b.partition(Opposite(side)), free);
    if (free) own.used_up = 0;
  }
  if (b.lhs == b.rhs) diagonal_.Set(b.lhs, free);
}

BucketMatrix::Rank BucketMatrix::FirstPlace(Side side, PartitionId partition,
                                            const BitSet& others) const {
  const Line& line = this->line(side, partition);
  const BitSet candidates = BitSet::Both(line.free, others);
  const int count = candidates.Count();
  if (count == 0) return kNone;
  Rank first = kNone;
  if (count <= kFewCandidates) {
    candidates.ForEach([&](int other) {
      first = std::min(first, Rank{Place(MakeBucket(side, partition, other))});
    });
    return first;
  }
  for (size_t i = line.used_up;; ++i) {
    if (!candidates.Contains(line.order[i])) continue;
    return Place(MakeBucket(side, partition, line.order[i]));
  }
}

BucketMatrix::Rank BucketMatrix::FirstInLine(Side side, PartitionId partition,
                                             const Allowed& allowed) const {
  if (!allowed.of(side).Contains(partition)) return kNone;
  const BitSet& others = allowed.of(Opposite(side));
  if (!allowed.avoid(side).Contains(partition)) {
    const Rank first = FirstPlace(side, partition, Without(others, allowed.avoid(Opposite(side))));
    if (first != kNone) return first;
  }
  const Rank avoided = FirstPlace(side, partition, others);
  return avoided == kNone ? kNone : avoided + kAvoided;
}

BucketMatrix::Rank BucketMatrix::FirstInLine(Side side, PartitionId partition) const {
  const Line& line = this->line(side, partition);
  while (line.used_up < line.order.size() && !line.free.Contains(line.order[line.used_up])) {
    ++line.used_up;
  }
  if (line.used_up == line.order.size()) return kNone;
  return Place(MakeBucket(side, partition, line.order[line.used_up]));
}

BucketMatrix::Rank BucketMatrix::FirstOnDiagonal(const Allowed& allowed) const {
  Rank first = kNone;
  BitSet::ForEachInBoth(diagonal_, allowed.lhs, [&](int i) {
    first = std::min(first, RankOf({i, i}, allowed));
  });
  return first;
}

BucketMatrix::Rank BucketMatrix::FirstAnywhere(const Allowed& allowed) const {
  const Rank first =
      FirstPlace(Without(allowed.lhs, allowed.avoid_lhs), Without(allowed.rhs, allowed.avoid_rhs));
  if (first != kNone) return first;
  const Rank avoided = FirstPlace(allowed.lhs, allowed.rhs);
  return avoided == kNone ? kNone : avoided + kAvoided;
}

BucketMatrix::Rank BucketMatrix::FirstPlace(const BitSet& lhs, const BitSet& rhs) const {
  // By rows or by columns, whichever are fewer; the most promising line first.
  const Side side = lhs.Count() <= rhs.Count() ? Side::kLhs : Side::kRhs;
  const BitSet& others = side == Side::kLhs ? rhs : lhs;
  std::vector<std::pair<Rank, PartitionId>> heap;
  (side == Side::kLhs ? lhs : rhs).ForEach([&](int i) {
    const Rank at_least = FirstInLine(side, i);
    if (at_least != kNone) heap.emplace_back(at_least, i);
  });
  std::ranges::make_heap(heap, std::greater<>());
  Rank first = kNone;
  while (!heap.empty() && heap.front().first < first) {
    std::ranges::pop_heap(heap, std::greater<>());
    first = std::min(first, FirstPlace(side, heap.back().second, others));
    heap.pop_back();
  }
  return first;
}

BucketMatrix::Rank BucketMatrix::RankOf(Bucket b, const Allowed& allowed) const {
  if (!IsFree(b) || !allowed.lhs.Contains(b.lhs) || !allowed.rhs.Contains(b.rhs)) return kNone;
  const bool avoid = allowed.avoid_lhs.Contains(b.lhs) || allowed.avoid_rhs.Contains(b.rhs);
  return Place(b) + (avoid ? kAvoided : 0);
}

}  // namespace weft
