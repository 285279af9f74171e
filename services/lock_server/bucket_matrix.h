// BucketMatrix holds which buckets of a pass are free, and finds the first free one, in the
// configured order, in a row, in a column, on the diagonal or anywhere, among allowed partitions.
//
// Every line is kept in the configured order, with the place up to which it is used up. So a search
// of one line looks at the buckets before the one that it finds, or at those that are allowed,
// whichever are fewer; a search anywhere goes through lines by their first free bucket and stops
// early. None looks at the whole matrix, which may have a million buckets.
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

    const BitSet& of(Side side) const { return side == Side::kLhs ? lhs : rhs; }
    const BitSet& avoid(Side side) const { return side == Side::kLhs ? avoid_lhs : avoid_rhs; }
  };

  // At least one partition on each side.
  BucketMatrix(int num_lhs, int num_rhs);

  // All buckets of `order` are free but those of `done`. `order` has each bucket once.
  void Reset(absl::Span<const Bucket> order, absl::Span<const Bucket> done);

  bool IsFree(Bucket b) const { return line(Side::kLhs, b.lhs).free.Contains(b.rhs); }
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

  // The buckets of one partition: by their partitions of the other side.
  struct Line {
    explicit Line(int size) : free(size) {}

    BitSet free;
    std::vector<PartitionId> order;  // all of them, as they stand in the configured order
    mutable size_t used_up = 0;      // so many at the front of `order` are not free
  };

  size_t Index(Bucket b) const {
    return static_cast<size_t>(b.lhs) * static_cast<size_t>(num_rhs_) + static_cast<size_t>(b.rhs);
  }
  const Line& line(Side side, PartitionId partition) const {
    return lines_[static_cast<size_t>(side)][static_cast<size_t>(partition)];
  }
  Line& line(Side side, PartitionId partition) {
    return lines_[static_cast<size_t>(side)][static_cast<size_t>(partition)];
  }
  static Bucket MakeBucket(Side side, PartitionId partition, PartitionId other) {
    return side == Side::kLhs ? Bucket{partition, other} : Bucket{other, partition};
  }
  // The first place of the line whose other partition is one of `others`.
  Rank FirstPlace(Side side, PartitionId partition, const BitSet& others) const;
  // The same of all lines of `lhs` and `rhs`.
  Rank FirstPlace(const BitSet& lhs, const BitSet& rhs) const;

  const int num_rhs_;
  std::vector<Bucket> order_;
  std::vector<uint32_t> place_;  // by bucket: its index in `order_`
  std::vector<Line> lines_[2];   // by side and partition
  BitSet diagonal_;              // the free buckets (i, i)
};

}  // namespace weft
