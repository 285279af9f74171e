// LockClient is how a trainer talks to the lock server: it is given buckets to train, hands back
// what it has trained, and learns when the run is over.
//
// A grant is the right to train some buckets from named base versions. Its token names the versions
// that the trainer will store. Releasing is a compare-and-set on the bases: it either makes the new
// versions current and the buckets done, in one durable write, or changes nothing.
//
// Implementations: LocalLockClient (the lock server's logic in this process). Every call is
// idempotent and may be repeated after Unavailable.
// Errors of all calls:
//   Aborted: the session or the grant has ended; forget grants and cached names, and Leave: the
//     next call is a new session's.
//   Unavailable, DeadlineExceeded: retry as is.
//   FailedPrecondition: wrong run, or (ReleaseBucket) store these partitions again.
// Thread-safety: may be called from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/cluster_types.h"
#include "services/common/run_stats.h"
#include "services/common/types.h"

namespace weft {

// A trainer of another version of either is refused.
inline constexpr uint32_t kProtocolVersion = 1;
// Of sampling, held-out edges, initial values and chunks.
inline constexpr uint32_t kAlgorithmVersion = 1;

struct GrantedBucket {
  Bucket bucket;
  int64_t expected_edges = 0;  // of this pass's edge chunk: trained + held out must equal it
};

struct GrantedPartition {
  enum class Source { kKeep, kRead, kInitialise };
  PartitionKey key;
  Token base = kInitialToken;
  Source source = Source::kInitialise;
  bool dirty = false;  // the base is newer than the last committed checkpoint
};

struct Grant {
  Token token = kInitialToken;
  PassPosition position;
  std::vector<GrantedBucket> buckets;        // train in this order
  std::vector<GrantedPartition> partitions;  // every partition the buckets use
  // What the trainer will likely be granted next and does not hold; a hint locks nothing.
  std::vector<PartitionVersion> hint;
  // The bucket of this pass that the hint is about.
  std::optional<Bucket> hinted_bucket;
  // The resident copies that the grant does not use, the one that will be wanted last first: what a
  // trainer short of room lets go.
  std::vector<PartitionKey> let_go;
  // In a cluster: where what is to be read, and what is hinted, lies; and where to store, the best
  // place first, each shard at `replicas` of them.
  std::vector<VersionInfo> places;
  std::vector<StoreId> store_at;
  int replicas = 1;
  // The edges of its buckets and of the hinted one, where partition servers hold them.
  std::vector<PartitionVersion> edges;
};

struct AcquireRequest {
  uint64_t number = 0;  // +1 for each new request; the same number gets the same answer
  std::vector<PartitionVersion> resident;  // copies bit-equal to these versions
  absl::Duration wait;  // how long the call may wait for something to become grantable
};

struct AcquireResult {
  std::optional<Grant> grant;  // none: nothing to do now
  int64_t remaining = 0;       // buckets of this pass not yet done
  bool run_done = false;       // nothing will ever be granted again
};

struct ReleaseRequest {
  Token token = kInitialToken;
  std::vector<PartitionKey> stored;  // each stored under `token` and durable
  std::vector<BucketStats> buckets;  // one for each bucket of the grant
  std::vector<VersionInfo> places;   // in a cluster: where each of `stored` lies
};

struct ReleaseResult {
  bool pass_done = false;  // this release ended the pass
};

struct TrainingFailure {
  Bucket bucket;
  std::string reason;  // names the relation and the batch
};

class LockClient {
 public:
  virtual ~LockClient() = default;

  virtual absl::StatusOr<AcquireResult> AcquireBucket(const AcquireRequest& request) = 0;
  virtual absl::StatusOr<ReleaseResult> ReleaseBucket(const ReleaseRequest& request) = 0;
  // Gives a grant back untrained.
  virtual absl::Status AbandonBucket(Token token) = 0;
  // Non-finite values and the like: the run stops with this reason, versions stay as they are.
  virtual absl::Status ReportFailure(Token token, const TrainingFailure& failure) = 0;
  // Ends the session; all its grants are void.
  virtual absl::Status Leave() = 0;
};

}  // namespace weft
