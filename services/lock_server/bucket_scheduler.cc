#include "services/lock_server/bucket_scheduler.h"

#include <algorithm>
#include <utility>

#include "services/common/check.h"

namespace weft {
namespace {

bool Any(const std::vector<BucketScheduler::PartitionedType>& types, bool lhs, bool rhs) {
  return std::ranges::any_of(types, [&](const BucketScheduler::PartitionedType& t) {
    return (!lhs || t.lhs) && (!rhs || t.rhs);
  });
}

}  // namespace

// What it costs, in bytes, to bring a bucket's partitions into memory.
class BucketScheduler::Costs {
 public:
  // Compared in this order: the less there is to load, and then the more is used in all, because
  // what is used and not loaded was in memory already.
  struct Cost {
    int64_t load = 0;
    int64_t minus_used = 0;
    auto operator<=>(const Cost&) const = default;
  };

  Costs(const Options& options, absl::Span<const PartitionKey> resident) {
    for (const PartitionedType& type : options.types) Add(type, 1, &absent_);
    for (const PartitionKey& key : resident) {
      for (const PartitionedType& type : options.types) {
        if (type.id != key.entity_type) continue;
        Add(type, -1, &present_.try_emplace(key.partition, absent_).first->second);
      }
    }
    for (const auto& [partition, bytes] : present_) partitions_.push_back(partition);
    std::ranges::sort(partitions_);
  }

  // Partitions of which something is in memory, ascending.
  const std::vector<PartitionId>& partitions() const { return partitions_; }

  Cost Of(Bucket b) const {
    const Bytes& lhs = At(b.lhs);
    const Bytes& rhs = At(b.rhs);
    if (b.lhs == b.rhs) return {lhs.lhs + rhs.rhs - lhs.both, absent_.both - All()};
    return {lhs.lhs + rhs.rhs, -All()};
  }
  // Of buckets whose other partition is not in memory at all.
  Cost OfLine(Side side, PartitionId partition) const {
    const Bytes& bytes = At(partition);
    return {side == Side::kLhs ? bytes.lhs + absent_.rhs : absent_.lhs + bytes.rhs, -All()};
  }
  Cost OfDiagonal() const { return {All() - absent_.both, absent_.both - All()}; }
  Cost OfOthers() const { return {All(), -All()}; }

 private:
  // To be loaded for a partition that is used on one side; `both`: the part that both would share.
  struct Bytes {
    int64_t lhs = 0;
    int64_t rhs = 0;
    int64_t both = 0;
  };
  static void Add(const PartitionedType& type, int times, Bytes* bytes) {
    bytes->lhs += type.lhs ? times * type.bytes : 0;
    bytes->rhs += type.rhs ? times * type.bytes : 0;
    bytes->both += type.lhs && type.rhs ? times * type.bytes : 0;
  }
  int64_t All() const { return absent_.lhs + absent_.rhs; }
  const Bytes& At(PartitionId partition) const {
    const auto found = present_.find(partition);
    return found == present_.end() ? absent_ : found->second;
  }

  Bytes absent_;
  absl::flat_hash_map<PartitionId, Bytes> present_;
  std::vector<PartitionId> partitions_;
};

void BucketScheduler::SideUse::Add(PartitionId partition, int by) {
  int& count = counts[static_cast<size_t>(partition)];
  count += by;
  WEFT_CHECK(count >= 0);
  if (count > 0) {
    used.Insert(partition);
  } else {
    used.Erase(partition);
  }
}

BucketScheduler::BucketScheduler(Options options)
    : options_(std::move(options)),
      locks_lhs_(Any(options_.types, true, false)),
      locks_rhs_(Any(options_.types, false, true)),
      crossed_(Any(options_.types, true, true)),
      matrix_(options_.num_lhs, options_.num_rhs),
      locks_{SideUse(options_.num_lhs), SideUse(options_.num_rhs)},
      hints_{SideUse(options_.num_lhs), SideUse(options_.num_rhs)} {
  WEFT_CHECK(!crossed_ || options_.num_lhs == options_.num_rhs);
  WEFT_CHECK(locks_lhs_ || options_.num_lhs == 1);
  WEFT_CHECK(locks_rhs_ || options_.num_rhs == 1);
}

void BucketScheduler::BeginPass(absl::Span<const Bucket> order, absl::Span<const Bucket> done) {
  matrix_.Reset(order, done);
  locks_ = {SideUse(options_.num_lhs), SideUse(options_.num_rhs)};
  hints_ = locks_;
  grants_.clear();
  held_.clear();
  hinted_.clear();
  num_done_ = static_cast<int64_t>(done.size());
  num_granted_ = 0;
}

std::vector<Bucket> BucketScheduler::Grant(
    const Request& request, GrantId grant,
    absl::FunctionRef<bool(const std::vector<Bucket>& granted, Bucket further)> add) {
  const std::optional<Bucket> chosen = Choose(request);
  if (!chosen.has_value()) return {};
  std::vector<Bucket> buckets = {*chosen};
  for (const Bucket& further : OverTheSamePartitions(*chosen)) {
    if (add(buckets, further)) buckets.push_back(further);
  }
  Restore(request.session, grant, buckets);
  return buckets;
}

void BucketScheduler::Restore(SessionId session, GrantId grant, std::vector<Bucket> buckets) {
  for (const Bucket& b : buckets) {
    WEFT_CHECK(matrix_.IsFree(b));
    matrix_.SetFree(b, false);
    Count(b, 1, &locks_);
    held_[session].push_back(b);
  }
  num_granted_ += static_cast<int64_t>(buckets.size());
  const bool is_new = grants_.try_emplace(grant, GrantState{session, std::move(buckets)}).second;
  WEFT_CHECK(is_new);
}

void BucketScheduler::EndGrant(GrantId grant, bool done) {
  const auto found = grants_.find(grant);
  WEFT_CHECK(found != grants_.end());
  const GrantState state = std::move(found->second);
  grants_.erase(found);
  const auto held = held_.find(state.session);
  for (const Bucket& b : state.buckets) {
    Count(b, -1, &locks_);
    if (!done) matrix_.SetFree(b, true);
    held->second.erase(std::ranges::find(held->second, b));
  }
  if (held->second.empty()) held_.erase(held);
  const auto count = static_cast<int64_t>(state.buckets.size());
  num_granted_ -= count;
  num_done_ += done ? count : 0;
}

std::optional<Bucket> BucketScheduler::Hint(const Request& request) {
  const std::optional<Bucket> bucket = Choose(request);
  ForgetHint(request.session);
  if (bucket.has_value()) {
    hinted_.emplace(request.session, *bucket);
    Count(*bucket, 1, &hints_);
  }
  return bucket;
}

void BucketScheduler::ForgetHint(SessionId session) {
  const auto found = hinted_.find(session);
  if (found == hinted_.end()) return;
  Count(found->second, -1, &hints_);
  hinted_.erase(found);
}

std::vector<PartitionKey> BucketScheduler::PartitionsOf(Bucket bucket) const {
  std::vector<PartitionKey> keys;
  for (const PartitionedType& type : options_.types) {
    if (type.lhs) keys.push_back({type.id, bucket.lhs});
    if (type.rhs && !(type.lhs && bucket.rhs == bucket.lhs)) keys.push_back({type.id, bucket.rhs});
  }
  return keys;
}

uint64_t BucketScheduler::NextUse(PartitionKey key) const {
  uint64_t next = BucketMatrix::kNone;
  for (const PartitionedType& type : options_.types) {
    if (type.id != key.entity_type) continue;
    if (type.lhs) next = std::min(next, matrix_.FirstInLine(Side::kLhs, key.partition));
    if (type.rhs) next = std::min(next, matrix_.FirstInLine(Side::kRhs, key.partition));
  }
  return next;
}

template <typename Visit>
void BucketScheduler::ForEachLock(Bucket b, const Visit& visit) const {
  if (crossed_) {
    for (const Side side : kSides) {
      visit(side, b.lhs);
      if (b.rhs != b.lhs) visit(side, b.rhs);
    }
    return;
  }
  if (locks_lhs_) visit(Side::kLhs, b.lhs);
  if (locks_rhs_) visit(Side::kRhs, b.rhs);
}

void BucketScheduler::Count(Bucket b, int by, Use* use) const {
  ForEachLock(b, [&](Side side, PartitionId partition) {
    (side == Side::kLhs ? use->lhs : use->rhs).Add(partition, by);
  });
}

BucketMatrix::Allowed BucketScheduler::MakeAllowed(const Request& request) const {
  BucketMatrix::Allowed allowed = {locks_.lhs.used, locks_.rhs.used, hints_.lhs.used,
                                   hints_.rhs.used};
  // What is locked, but for what the asking session holds itself; then the others.
  if (const auto held = held_.find(request.session); held != held_.end()) {
    for (const Bucket& b : held->second) {
      ForEachLock(b, [&](Side side, PartitionId partition) {
        (side == Side::kLhs ? allowed.lhs : allowed.rhs).Erase(partition);
      });
    }
  }
  allowed.lhs.Invert();
  allowed.rhs.Invert();
  for (const PartitionKey& key : request.unusable) {
    for (const PartitionedType& type : options_.types) {
      if (type.id != key.entity_type) continue;
      if (type.lhs) allowed.lhs.Erase(key.partition);
      if (type.rhs) allowed.rhs.Erase(key.partition);
    }
  }
  if (const auto hinted = hinted_.find(request.session); hinted != hinted_.end()) {
    ForEachLock(hinted->second, [&](Side side, PartitionId partition) {
      const bool is_lhs = side == Side::kLhs;
      const SideUse& use = is_lhs ? hints_.lhs : hints_.rhs;
      if (use.counts[static_cast<size_t>(partition)] > 1) return;  // somebody else's, too
      (is_lhs ? allowed.avoid_lhs : allowed.avoid_rhs).Erase(partition);
    });
  }
  return allowed;
}

struct BucketScheduler::Choice {
  Costs::Cost cost = {INT64_MAX, 0};
  BucketMatrix::Rank rank = BucketMatrix::kNone;
};

std::optional<Bucket> BucketScheduler::Choose(const Request& request) const {
  const BucketMatrix::Allowed allowed = MakeAllowed(request);
  Choice best;
  if (request.trained == nullptr) {
    ChooseAmong(request, allowed, &best);
  } else {
    BucketMatrix::Allowed with_lhs = allowed;
    with_lhs.lhs.Intersect(request.trained->lhs);
    ChooseAmong(request, with_lhs, &best);
    BucketMatrix::Allowed with_rhs = allowed;
    with_rhs.rhs.Intersect(request.trained->rhs);
    ChooseAmong(request, with_rhs, &best);
  }
  if (best.rank == BucketMatrix::kNone) return std::nullopt;
  return matrix_.At(best.rank);
}

void BucketScheduler::ChooseAmong(const Request& request, const BucketMatrix::Allowed& allowed,
                                  Choice* best) const {
  // A search may answer with a bucket that costs less than `cost`; then that bucket has been, or
  // will be, considered at its own cost, and wins there.
  auto consider = [&](Costs::Cost cost, const auto& search) {
    if (cost > best->cost) return;
    const BucketMatrix::Rank rank = search();
    if (rank == BucketMatrix::kNone || (cost == best->cost && rank >= best->rank)) return;
    *best = {cost, rank};
  };
  if (options_.order_first) {
    consider({}, [&] { return matrix_.FirstAnywhere(allowed); });
  } else {
    const Costs costs(options_, request.resident);
    for (const PartitionId lhs : costs.partitions()) {
      for (const PartitionId rhs : costs.partitions()) {
        if (lhs >= options_.num_lhs || rhs >= options_.num_rhs) continue;
        const Bucket b = {lhs, rhs};
        consider(costs.Of(b), [&] { return matrix_.RankOf(b, allowed); });
      }
    }
    for (const PartitionId partition : costs.partitions()) {
      for (const Side side : kSides) {
        if (partition >= (side == Side::kLhs ? options_.num_lhs : options_.num_rhs)) continue;
        consider(costs.OfLine(side, partition),
                 [&] { return matrix_.FirstInLine(side, partition, allowed); });
      }
    }
    consider(costs.OfDiagonal(), [&] { return matrix_.FirstOnDiagonal(allowed); });
    consider(costs.OfOthers(), [&] { return matrix_.FirstAnywhere(allowed); });
  }
}

std::vector<Bucket> BucketScheduler::OverTheSamePartitions(Bucket bucket) const {
  if (!crossed_) return {};
  const std::vector<PartitionKey> keys = PartitionsOf(bucket);
  std::vector<std::pair<uint64_t, Bucket>> found;
  for (const Bucket& b : {Bucket{bucket.rhs, bucket.lhs}, Bucket{bucket.lhs, bucket.lhs},
                          Bucket{bucket.rhs, bucket.rhs}}) {
    if (b == bucket || !matrix_.IsFree(b)) continue;
    const bool covered = std::ranges::all_of(PartitionsOf(b), [&](const PartitionKey& key) {
      return std::ranges::find(keys, key) != keys.end();
    });
    const std::pair<uint64_t, Bucket> entry = {matrix_.Place(b), b};
    if (covered && std::ranges::find(found, entry) == found.end()) found.push_back(entry);
  }
  std::ranges::sort(found);
  std::vector<Bucket> buckets;
  for (const auto& [place, b] : found) buckets.push_back(b);
  return buckets;
}

}  // namespace weft
