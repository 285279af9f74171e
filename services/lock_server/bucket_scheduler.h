// BucketScheduler decides who trains which buckets next. It knows buckets (free, granted, done),
// the session on each partition, and hints; versions, files and time are not its business.
//
// A bucket is grantable when it is free and no partition it uses is held by another session.
// Entity types with one partition lock nothing; a type used on one side only locks only there.
// Among grantable buckets: the fewest bytes to load, given what the session has in memory (averages
// per type, so that small differences in size do not dictate the order), and of these the one that
// uses most of what is there; then one that is not hinted to somebody else; then the configured
// order. With `order_first` the configured order comes first: so the order `random` stays random.
// A hint says what a session will likely be granted next. It locks nothing.
//
// Cost of a call: a few rows and columns of the bucket matrix, never all of it.
// Not thread-safe. Ends the process when it is told of grants that it did not make.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "services/common/types.h"
#include "services/lock_server/bit_set.h"
#include "services/lock_server/bucket_matrix.h"

namespace weft {

class BucketScheduler {
 public:
  using SessionId = uint64_t;
  using GrantId = uint64_t;

  // An entity type with more than one partition. All types used on a side have as many partitions
  // as the side.
  struct PartitionedType {
    EntityTypeId id = 0;
    bool lhs = false;  // used on that side
    bool rhs = false;
    int64_t bytes = 0;  // of a partition, on average
  };

  struct Options {
    int num_lhs = 1;
    int num_rhs = 1;
    std::vector<PartitionedType> types;
    bool order_first = false;
  };

  explicit BucketScheduler(Options options);

  // Begins a pass: the buckets of `order` (each bucket once) are free, those of `done` are done;
  // no grants, no hints.
  void BeginPass(absl::Span<const Bucket> order, absl::Span<const Bucket> done);

  // The partitions that have been trained, by side.
  struct Trained {
    BitSet lhs;
    BitSet rhs;
  };

  struct Request {
    SessionId session = 0;
    // Partitions that the session has in memory: they need not be loaded.
    absl::Span<const PartitionKey> resident = {};
    // Partitions that the session holds but cannot have now: neither in memory nor stored yet.
    absl::Span<const PartitionKey> unusable = {};
    // Set: only buckets of which a partition is among these.
    const Trained* trained = nullptr;
  };

  // Grants a bucket, and those further ones over the same partitions of which `add` (given what is
  // granted so far, and the one in question) says so. In the order in which they are to be trained;
  // empty when nothing is grantable.
  std::vector<Bucket> Grant(
      const Request& request, GrantId grant,
      absl::FunctionRef<bool(const std::vector<Bucket>& granted, Bucket further)> add);

  // Takes a grant over that was made before a restart.
  // REQUIRES: its buckets are free, its partitions not another session's.
  void Restore(SessionId session, GrantId grant, std::vector<Bucket> buckets);

  // The grant's buckets are done, or free again; its partitions are let go.
  void Finish(GrantId grant) { EndGrant(grant, true); }
  void Return(GrantId grant) { EndGrant(grant, false); }

  // What Grant would choose now; noted as the session's hint, in place of an earlier one.
  std::optional<Bucket> Hint(const Request& request);
  void ForgetHint(SessionId session);

  // The partitions that a bucket uses, each once.
  std::vector<PartitionKey> PartitionsOf(Bucket bucket) const;
  // Where in the configured order the first free bucket stands that uses `key`; UINT64_MAX: none.
  uint64_t NextUse(PartitionKey key) const;

  int64_t num_buckets() const { return static_cast<int64_t>(options_.num_lhs) * options_.num_rhs; }
  int64_t num_done() const { return num_done_; }
  int64_t num_granted() const { return num_granted_; }
  bool IsFree(Bucket bucket) const { return matrix_.IsFree(bucket); }

 private:
  struct GrantState {
    SessionId session = 0;
    std::vector<Bucket> buckets;
  };
  // How many buckets of grants (or of hints) use each partition of a side.
  struct SideUse {
    explicit SideUse(int partitions) : counts(static_cast<size_t>(partitions)), used(partitions) {}
    void Add(PartitionId partition, int by);

    std::vector<int> counts;
    BitSet used;  // counts above 0
  };
  struct Use {
    SideUse lhs;
    SideUse rhs;
  };
  class Costs;
  struct Choice;

  // Calls visit(side, partition) for each lock of a bucket, each once.
  template <typename Visit>
  void ForEachLock(Bucket b, const Visit& visit) const;
  void Count(Bucket b, int by, Use* use) const;
  BucketMatrix::Allowed MakeAllowed(const Request& request) const;
  std::optional<Bucket> Choose(const Request& request) const;
  void ChooseAmong(const Request& request, const BucketMatrix::Allowed& allowed,
                   Choice* best) const;
  std::vector<Bucket> OverTheSamePartitions(Bucket bucket) const;
  void EndGrant(GrantId grant, bool done);

  const Options options_;
  const bool locks_lhs_;  // some partitioned type is on that side
  const bool locks_rhs_;
  const bool crossed_;  // some type is on both: partition i is one lock, whatever the side

  BucketMatrix matrix_;
  Use locks_;
  Use hints_;
  absl::flat_hash_map<GrantId, GrantState> grants_;
  absl::flat_hash_map<SessionId, std::vector<Bucket>> held_;  // buckets of a session's grants
  absl::flat_hash_map<SessionId, Bucket> hinted_;
  int64_t num_done_ = 0;
  int64_t num_granted_ = 0;
};

}  // namespace weft
