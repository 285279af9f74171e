#include "services/lock_server/bucket_matrix.h"

#include <algorithm>
#include <utility>

#include "services/common/check.h"

namespace weft {
namespace {

constexpr size_t kLhs = static_cast<size_t>(Side::kLhs);
constexpr size_t kRhs = static_cast<size_t>(Side::kRhs);

}  // namespace

BucketMatrix::BucketMatrix(int num_lhs, int num_rhs)
    : num_rhs_(num_rhs),
      place_(static_cast<size_t>(num_lhs) * static_cast<size_t>(num_rhs)),
      rows_(static_cast<size_t>(num_lhs), BitSet(num_rhs)),
      cols_(static_cast<size_t>(num_rhs), BitSet(num_lhs)) {
  WEFT_CHECK(num_lhs >= 1 && num_rhs >= 1);
  bound_[kLhs].assign(rows_.size(), kNone);
  bound_[kRhs].assign(cols_.size(), kNone);
}

void BucketMatrix::Reset(absl::Span<const Bucket> order, absl::Span<const Bucket> done) {
  WEFT_CHECK(order.size() == place_.size());
  order_.assign(order.begin(), order.end());
  std::ranges::fill(bound_[kLhs], kNone);
  std::ranges::fill(bound_[kRhs], kNone);
  for (size_t i = 0; i < order.size(); ++i) {
    place_[Index(order[i])] = static_cast<uint32_t>(i);
    SetFree(order[i], true);
  }
  for (const Bucket& b : done) SetFree(b, false);
}

void BucketMatrix::SetFree(Bucket b, bool free) {
  const auto lhs = static_cast<size_t>(b.lhs);
  const auto rhs = static_cast<size_t>(b.rhs);
  if (!free) {
    rows_[lhs].Erase(b.rhs);
    cols_[rhs].Erase(b.lhs);
    return;
  }
  rows_[lhs].Insert(b.rhs);
  cols_[rhs].Insert(b.lhs);
  const Rank place = place_[Index(b)];
  bound_[kLhs][lhs] = std::min(bound_[kLhs][lhs], place);
  bound_[kRhs][rhs] = std::min(bound_[kRhs][rhs], place);
}

BucketMatrix::Rank BucketMatrix::FirstInLine(Side side, PartitionId partition,
                                             const Allowed& allowed) const {
  const bool is_row = side == Side::kLhs;
  if (!(is_row ? allowed.lhs : allowed.rhs).Contains(partition)) return kNone;
  Rank first = kNone;
  BitSet::ForEachInBoth(
      lines(side)[static_cast<size_t>(partition)], is_row ? allowed.rhs : allowed.lhs,
      [&](int other) {
        const Bucket b = is_row ? Bucket{partition, other} : Bucket{other, partition};
        first = std::min(first, RankIn(b, allowed));
      });
  return first;
}

BucketMatrix::Rank BucketMatrix::FirstInLine(Side side, PartitionId partition) const {
  const bool is_row = side == Side::kLhs;
  Rank first = kNone;
  lines(side)[static_cast<size_t>(partition)].ForEach([&](int other) {
    const Bucket b = is_row ? Bucket{partition, other} : Bucket{other, partition};
    first = std::min(first, Rank{place_[Index(b)]});
  });
  bound_[static_cast<size_t>(side)][static_cast<size_t>(partition)] = first;
  return first;
}

BucketMatrix::Rank BucketMatrix::FirstOnDiagonal(const Allowed& allowed) const {
  Rank first = kNone;
  allowed.lhs.ForEach([&](int i) {
    if (i < num_rhs_) first = std::min(first, RankOf({i, i}, allowed));
  });
  return first;
}

BucketMatrix::Rank BucketMatrix::FirstAnywhere(const Allowed& allowed) const {
  // By rows or by columns, whichever are fewer; the most promising line first.
  const Side side = allowed.lhs.Count() <= allowed.rhs.Count() ? Side::kLhs : Side::kRhs;
  const std::vector<Rank>& bound = bound_[static_cast<size_t>(side)];
  std::vector<std::pair<Rank, PartitionId>> heap;
  (side == Side::kLhs ? allowed.lhs : allowed.rhs).ForEach([&](int i) {
    const Rank at_least = bound[static_cast<size_t>(i)];
    if (at_least != kNone) heap.emplace_back(at_least, i);
  });
  std::ranges::make_heap(heap, std::greater<>());
  Rank first = kNone;
  while (!heap.empty() && heap.front().first < first) {
    std::ranges::pop_heap(heap, std::greater<>());
    const auto [at_least, partition] = heap.back();
    heap.pop_back();
    // The bound may be too low: what it stood for has been granted meanwhile.
    const Rank exact = FirstInLine(side, partition);
    if (exact > at_least) {
      if (exact == kNone) continue;
      heap.emplace_back(exact, partition);
      std::ranges::push_heap(heap, std::greater<>());
      continue;
    }
    first = std::min(first, FirstInLine(side, partition, allowed));
  }
  return first;
}

BucketMatrix::Rank BucketMatrix::RankOf(Bucket b, const Allowed& allowed) const {
  const bool possible = IsFree(b) && allowed.lhs.Contains(b.lhs) && allowed.rhs.Contains(b.rhs);
  return possible ? RankIn(b, allowed) : kNone;
}

}  // namespace weft
