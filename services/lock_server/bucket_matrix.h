// BucketMatrix holds which buckets of a pass are free, and finds the first free one, in the
// configured order, in a row, in a column, on the diagonal or anywhere, among allowed partitions.
//
// A search of one line looks at its free buckets; a search anywhere goes through lines by a lower
// bound and stops early. None looks at the whole matrix, which may have a million buckets.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "services/common/types.h"
#include "services/lock_server/bit_set.h"

namespace weft {

class BucketMatrix {
 public:
  // Where a bucket stands: its place in the configured order, after all that are not to be avoided.
  using Rank = uint64_t;
  static constexpr Rank kNone = UINT64_MAX;

  // The partitions of each side that a search may use, and those that it had better not.
  struct Allowed {
    BitSet lhs;
    BitSet rhs;
    BitSet avoid_lhs;
    BitSet avoid_rhs;
  };

  // At least one partition on each side.
  BucketMatrix(int num_lhs, int num_rhs);

  // All buckets of `order` are free but those of `done`. `order` has each bucket once.
  void Reset(absl::Span<const Bucket> order, absl::Span<const Bucket> done);

  bool IsFree(Bucket b) const { return rows_[static_cast<size_t>(b.lhs)].Contains(b.rhs); }
  void SetFree(Bucket b, bool free);

  // kNone when nothing is found. The line of side kLhs and partition i is row i.
  Rank FirstInLine(Side side, PartitionId partition, const Allowed& allowed) const;
  Rank FirstOnDiagonal(const Allowed& allowed) const;
  Rank FirstAnywhere(const Allowed& allowed) const;
  // Of one bucket: kNone when it is not free or not allowed.
  Rank RankOf(Bucket b, const Allowed& allowed) const;
  // The same for a line without any restriction.
  Rank FirstInLine(Side side, PartitionId partition) const;

  Bucket At(Rank rank) const { return order_[rank & kPlaceMask]; }
  // The index of a bucket in the configured order.
  uint32_t Place(Bucket b) const { return place_[Index(b)]; }

 private:
  static constexpr Rank kPlaceMask = UINT32_MAX;
  static constexpr Rank kAvoided = Rank{1}
                                   << 32;  // added to the rank of what had better not be used

  size_t Index(Bucket b) const {
    return static_cast<size_t>(b.lhs) * static_cast<size_t>(num_rhs_) + static_cast<size_t>(b.rhs);
  }
  Rank RankIn(Bucket b, const Allowed& allowed) const {
    const bool avoid = allowed.avoid_lhs.Contains(b.lhs) || allowed.avoid_rhs.Contains(b.rhs);
    return place_[Index(b)] + (avoid ? kAvoided : 0);
  }
  std::vector<BitSet>& lines(Side side) { return side == Side::kLhs ? rows_ : cols_; }
  const std::vector<BitSet>& lines(Side side) const { return side == Side::kLhs ? rows_ : cols_; }

  const int num_rhs_;
  std::vector<Bucket> order_;
  std::vector<uint32_t> place_;  // by bucket: its index in `order_`
  std::vector<BitSet> rows_;     // by lhs partition: the rhs partitions of its free buckets
  std::vector<BitSet> cols_;     // by rhs partition: the lhs partitions of its free buckets
  // By side and partition: no free bucket of the line stands before it. Raised when a search has
  // looked at the line, so that most lines need no look.
  mutable std::vector<Rank> bound_[2];
};

}  // namespace weft
